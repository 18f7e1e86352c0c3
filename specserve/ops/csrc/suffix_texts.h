// The texts of a suffix tree, in pages of tokens. A position names one token for good: its page and its place.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace specserve {

// Elements with stable addresses and 32-bit names, in chunks of 2^kLog.
template <typename T, int kLog>
class Elements {
 public:
  T& operator[](uint32_t i) const { return chunks_[i >> kLog][i & ((1u << kLog) - 1)]; }
  size_t num_bytes() const { return (size_ - free_.size()) * sizeof(T); }
  uint32_t add() {
    if (!free_.empty()) {
      const uint32_t i = free_.back();
      free_.pop_back();
      (*this)[i] = T();
      return i;
    }
    if (size_ == chunks_.size() << kLog) chunks_.push_back(std::make_unique<T[]>(size_t(1) << kLog));
    return uint32_t(size_++);
  }
  void remove(uint32_t i) { free_.push_back(i); }

 private:
  std::vector<std::unique_ptr<T[]>> chunks_;
  std::vector<uint32_t> free_;
  size_t size_ = 0;
};

struct Text {
  std::vector<uint32_t> pages;
  uint32_t size = 0;  // tokens
  bool grows = true;
  // The tree's: the nodes of its endings of 1, 2, … tokens, as far as they occur elsewhere too.
  std::vector<uint32_t> ends;
};

struct TextPage {
  static constexpr uint32_t kSize = 64;
  int32_t tokens[kSize];
  uint64_t serial = 0;  // of its text
  uint32_t first = 0;   // index in the text of its first token
  uint32_t next = 0;
};
using TextPages = Elements<TextPage, 4>;

class Texts {
 public:
  explicit Texts(TextPages& pages) : pages_(pages) {}
  uint64_t start();  // a serial number; the youngest text has the largest
  // Null when there is no such text, any more.
  Text* find(uint64_t serial) { return serial - first_ < texts_.size() ? &texts_[serial - first_] : nullptr; }
  void push(uint64_t serial, int32_t token);  // to a text that there is
  void drop();                                // the oldest text, which there is
  uint64_t first() const { return first_; }
  size_t num_texts() const { return texts_.size(); }
  size_t num_tokens() const { return num_tokens_; }

  uint32_t position(const Text& text, uint32_t index) const {
    return text.pages[index / kPage] * kPage + index % kPage;
  }
  int32_t at(uint32_t position, uint32_t ahead) const {
    const TextPage* page = &pages_[position / kPage];
    uint32_t place = position % kPage + ahead;
    for (; place >= kPage; place -= kPage) page = &pages_[page->next];
    return page->tokens[place];
  }
  Text& text_of(uint32_t position) { return texts_[pages_[position / kPage].serial - first_]; }
  // The tokens from there to the end of its text.
  uint32_t left(uint32_t position) const {
    const TextPage& page = pages_[position / kPage];
    return texts_[page.serial - first_].size - page.first - position % kPage;
  }
  // In a younger text, or further on in the same one.
  bool is_later(uint32_t a, uint32_t b) const {
    const TextPage &one = pages_[a / kPage], &other = pages_[b / kPage];
    if (one.serial != other.serial) return one.serial > other.serial;
    return one.first + a % kPage > other.first + b % kPage;
  }

 private:
  static constexpr uint32_t kPage = TextPage::kSize;
  TextPages& pages_;
  std::deque<Text> texts_;
  uint64_t first_ = 0;  // the oldest text's
  size_t num_tokens_ = 0;
};

}  // namespace specserve
