#include <algorithm>
#include <cmath>

#include "suffix.h"

namespace specserve {

int64_t SuffixTree::count(const Tokens& tokens) const {
  Place place{root_, 0};
  uint64_t work = 0;
  if (tokens.empty() || !locate(tokens.data(), uint32_t(tokens.size()), place, work)) return 0;
  return count_of(place.ref);
}

// Score of the ending of m tokens: of at most m * factor tokens that most often follow, one after the other, those
// with probability >= min_probability, their probabilities added up.
Guess SuffixTree::speculate(uint64_t serial, const Tokens& context, const GuessLimits& limits) {
  Guess best, guess;
  const Text* text = texts_.find(serial);
  if (text && !text->grows) text = nullptr;  // its endings were forgotten
  const uint32_t size = uint32_t(std::min<size_t>(context.size(), depth_));
  uint64_t work = 0;
  for (uint32_t match = 1; match < size; ++match) {
    Place place{root_, match};
    if (text && match <= text->ends.size()) {
      place.ref = text->ends[match - 1];
    } else if ((text && match <= text->size) || !locate(&*context.end() - match, match, place, work)) {
      break;  // an ending that is alone has nothing behind it, and neither have the longer ones
    }
    const double budget = std::floor(match * limits.factor + 1e-6);
    guess.match = int(match);
    guess.work = 0;
    follow(place, int64_t(std::min<double>(budget, double(limits.max_tokens))), limits.min_probability, guess);
    work += guess.work;
    if (guess.score >= best.score) std::swap(best, guess);
  }
  best.work = work;
  return best;
}

bool SuffixTree::locate(const int32_t* tokens, uint32_t length, Place& place, uint64_t& work) const {
  if (length > depth_) return false;
  uint32_t ref = root_;
  for (uint32_t done = 0; done < length;) {
    const Child* child = is_alone(ref) ? nullptr : fans_.find(nodes_[ref].fan, tokens[done]);
    ++work;
    if (!child) return false;
    ref = child->ref;
    const uint32_t start = start_of(ref), end = std::min(depth_of(ref), length);
    while (++done < end)
      if (texts_.at(start, done) != tokens[done]) return false;
  }
  place = {ref, length};
  return true;
}

void SuffixTree::follow(Place place, int64_t budget, float min_probability, Guess& guess) const {
  guess.tokens.clear();
  guess.score = 0.0f;
  float probability = 1.0f;
  uint32_t ref = place.ref, start = start_of(ref), end = depth_of(ref);
  for (uint32_t depth = place.length; int64_t(guess.tokens.size()) < budget; ++depth) {
    if (depth == end) {
      const uint32_t child = is_alone(ref) ? kNoChild : nodes_[ref].heavy;
      ++guess.work;
      if (child == kNoChild) return;
      probability *= float(count_of(child)) / float(count_of(ref));
      if (probability < min_probability) return;
      ref = child, start = start_of(ref), end = depth_of(ref);
    }
    guess.tokens.push_back(texts_.at(start, depth));
    guess.score += probability;
  }
}

}  // namespace specserve
