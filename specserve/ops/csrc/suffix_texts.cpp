#include "suffix_texts.h"

#include <stdexcept>

namespace specserve {

uint64_t Texts::start() {
  texts_.emplace_back();
  return first_ + texts_.size() - 1;
}

void Texts::push(uint64_t serial, int32_t token) {
  Text& text = texts_[serial - first_];
  if (text.size % kPage == 0) {
    const uint32_t page = pages_.add();
    if (page >= (1u << 31) / kPage - 1) throw std::length_error("suffix trees hold less than 2^31 tokens");
    if (!text.pages.empty()) pages_[text.pages.back()].next = page;
    pages_[page].serial = serial;
    pages_[page].first = text.size;
    text.pages.push_back(page);
  }
  pages_[text.pages.back()].tokens[text.size % kPage] = token;
  ++text.size;
  ++num_tokens_;
}

void Texts::drop() {
  Text& text = texts_.front();
  for (uint32_t page : text.pages) pages_.remove(page);
  num_tokens_ -= text.size;
  texts_.pop_front();
  ++first_;
}

}  // namespace specserve
