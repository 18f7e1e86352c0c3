// The suffix tree's counts are those of a search, through texts that grow side by side, end and leave.
#include <algorithm>
#include <deque>

#include "check.h"
#include "suffix.h"

namespace specserve::test {
namespace {

using Tokens = SuffixTree::Tokens;

int64_t plain_count(const std::deque<Tokens>& texts, const Tokens& string) {
  int64_t count = 0;
  for (const Tokens& text : texts)
    for (auto at = text.begin();; ++at, ++count)
      if ((at = std::search(at, text.end(), string.begin(), string.end())) == text.end()) break;
  return count;
}

Tokens random_tokens(Random& random, int alphabet, int longest) {
  Tokens tokens(1 + random.below(longest));
  for (int32_t& token : tokens) token = random.below(alphabet);
  return tokens;
}

const Test counts("the suffix tree counts what a search counts", [] {
  Random random(6);
  SuffixMemory memory;
  for (int round = 0; round < 60; ++round) {
    const int depth = random.one_of<int>({1, 2, 4, 9, 24}), alphabet = random.one_of<int>({1, 2, 3, 30});
    SuffixTree tree(uint16_t(depth), memory);
    std::deque<Tokens> texts;
    uint64_t first = 0;
    for (int step = 0; step < 60; ++step) {
      const int choice = random.below(10);
      if (choice == 0 || texts.empty()) {
        tree.start();
        texts.emplace_back();
      } else if (choice == 1) {
        tree.evict();
        texts.pop_front();
        ++first;
      } else {
        const int which = random.below(int(texts.size()));
        const Tokens more = random_tokens(random, alphabet, 70);
        tree.append(first + which, more);
        texts[which].insert(texts[which].end(), more.begin(), more.end());
        const Guess guess = tree.speculate(first + which, texts[which], {8, 1.0, 0.1f});
        expect(int(guess.tokens.size()) <= std::min(8, depth), "more guesses than asked for");
      }
      for (int i = 0; i < 20; ++i) {
        const Tokens string = random_tokens(random, alphabet, depth);
        expect(tree.count(string) == plain_count(texts, string), "round " + std::to_string(round));
      }
    }
    if (round % 2)
      while (tree.evict()) {}
  }
  expect(memory.num_bytes() == 0, "trees that are gone leave nothing");
});

const Test late("a text that left takes no more tokens", [] {
  SuffixMemory memory;
  SuffixTree tree(4, memory);
  const uint64_t text = tree.start();
  expect(tree.append(text, {1, 2, 1, 2}) && tree.count({1, 2}) == 2, "counted");
  tree.evict();
  expect(!tree.append(text, {1, 2}) && tree.count({1}) == 0, "not counted");
  tree.finish(text);
});

}  // namespace
}  // namespace specserve::test
