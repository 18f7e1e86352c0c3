// Sampling: every instruction set gives the bits of plain loops, whatever the threads; and the n-gram index
// gives the answers of a search. Python's tests compare the same functions with their references.
#include <algorithm>
#include <memory>

#include "check.h"
#include "sampler.h"
#include "search.h"

namespace specserve::test {
namespace {

using sampling::Functions;
using Floats = std::vector<float>;

const std::vector<const char*> kSets = {"portable", "best"};
const std::vector<int> kSizes = {1, 2, 31, 63, 64, 65, 130, 1000, 4097};
const float kNever = -INFINITY;

std::string place(const char* set, int size, int round) {
  return std::string(set) + ", " + std::to_string(size) + " ids, round " + std::to_string(round);
}

// Ties, gaps, NaN and infinities; exactly as long as it says.
Floats random_row(Random& random, int size) {
  Floats row = random.floats(size, random.one_of<float>({0.0f, 0.5f, 5.0f, 40.0f}));
  const bool has_ties = random.coin(), has_gaps = random.coin(), has_nan = random.below(4) == 0;
  for (float& x : row) {
    if (has_ties) x = std::round(x);
    if (has_gaps && random.coin()) x = kNever;
    if (has_nan && random.below(8) == 0) x = NAN;
  }
  if (random.below(10) == 0) row[random.below(size)] = INFINITY;
  return row;
}

int64_t plain_best(const Floats& row) {
  int64_t best = 0;
  float most = kNever;
  for (size_t i = 0; i < row.size(); ++i)
    if (row[i] > most) most = row[i], best = int64_t(i);
  return best;
}

int64_t plain_draw(Sampler& sampler, const Floats& row, const DrawKeys& keys, int r) {
  if (!(keys.temperatures[r] > 0.0) || !std::isfinite(row[plain_best(row)])) return plain_best(row);
  Floats scores(row.size());
  sampler.noise({keys.seeds[r], keys.indices[r], keys.purpose}, int(row.size()), scores.data());
  for (size_t i = 0; i < row.size(); ++i) scores[i] += row[i];
  return plain_best(scores);
}

Floats side_by_side(Random& random, int num_rows, int size) {
  Floats all;
  for (int r = 0; r < num_rows; ++r) {
    const Floats row = random_row(random, size);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

DrawKeys random_keys(Random& random, int count) {
  DrawKeys keys{{}, {}, {}, uint32_t(random.below(4))};
  for (int i = 0; i < count; ++i) {
    keys.temperatures.push_back(random.coin() ? 1.0 : 0.0);
    keys.seeds.push_back(uint64_t(random.below(1 << 30)) << 34 | 5);
    keys.indices.push_back(random.below(1 << 20));
  }
  return keys;
}

const Test draws("a draw is the argmax of logits and noise", [] {
  Random random(1);
  for (const char* set : kSets)
    for (int size : kSizes)
      for (int round = 0; round < 6; ++round) {
        Pool pool(1 + round % 2);
        Sampler sampler(pool, sampling::find_functions(set));
        Floats logits = side_by_side(random, 3, size);
        const DrawKeys keys = random_keys(random, 3);
        const auto tokens = sampler.draw({logits.data(), 3, size}, keys);
        for (int r = 0; r < 3; ++r) {
          const Floats row(logits.begin() + r * size, logits.begin() + (r + 1) * size);
          expect(tokens[r] == plain_draw(sampler, row, keys, r), place(set, size, round));
        }
      }
});

const Test noises("all instruction sets make the same noise", [] {
  Pool pool(1);
  Sampler portable(pool, sampling::find_functions("portable")), best(pool, sampling::find_functions("best"));
  for (int size : kSizes) {
    Floats a(size), b(size);
    const sampling::Key key{~uint64_t(size), uint64_t(size) << 33 | 7, 2};
    portable.noise(key, size, a.data());
    best.noise(key, size, b.data());
    expect(a == b, place("both", size, 0));
  }
});

// Enough work to be shared out, many times: threads that are ahead of each other must agree.
const Test races("the accept test finds the first refusal on any number of threads", [] {
  const int size = 20000, num_drafts = 6;
  Random random(2);
  Floats logits = random.floats(size_t(num_drafts) * 6 * size, 4.0f);
  const DrawKeys keys = random_keys(random, num_drafts);
  std::vector<std::vector<int64_t>> drafts;
  Pool one(1);
  Sampler alone(one, sampling::find_functions("best"));
  for (int i = 0; i < num_drafts; ++i) {
    drafts.emplace_back();
    for (int j = 0; j < 5; ++j) {
      const DrawKeys key{{keys.temperatures[i]}, {keys.seeds[i]}, {keys.indices[i] + j}, keys.purpose};
      const int64_t own = alone.draw({logits.data() + size_t(6 * i + j) * size, 1, size}, key)[0];
      drafts.back().push_back(j == i ? own + 1 : own);
    }
  }
  for (int num_threads = 1; num_threads <= 4; ++num_threads) {
    Pool pool(num_threads);
    Sampler sampler(pool, sampling::find_functions("best"));
    for (int round = 0; round < 5; ++round) {
      const Accepted found = sampler.accept({logits.data(), num_drafts * 6, size}, drafts, keys);
      for (int i = 0; i < num_drafts; ++i)
        expect(found.accepted[i] == std::min(i, 5), place("accepted", num_threads, round));
      for (int i = 0; i < 5; ++i)
        expect(found.next_tokens[i] == drafts[i][i] - 1, place("next token", num_threads, round));
    }
  }
});

const Test truncations("all instruction sets keep the same ids, and top-k those above the k-th", [] {
  Random random(3);
  Pool pool(1);
  Sampler portable(pool, sampling::find_functions("portable")), best(pool, sampling::find_functions("best"));
  for (int size : kSizes)
    for (int round = 0; round < 20; ++round) {
      const Floats row = random_row(random, size);
      const int k = random.below(size + 1);
      const double top_p = random.one_of<double>({1.0, 1.0, 0.9, 0.3, 1e-6});
      const bool has_min_p = random.below(3) == 0;
      const sampling::Truncation truncation{k, top_p, has_min_p, -3.0f};
      Floats a = row, b = row;
      portable.truncate({a.data(), 1, size}, {truncation});
      best.truncate({b.data(), 1, size}, {truncation});
      for (int i = 0; i < size; ++i)
        expect(a[i] == b[i] || (a[i] != a[i] && b[i] != b[i]), place("both", size, round));
      if (k == 0 || k == size || top_p < 1.0 || has_min_p || !std::isfinite(row[plain_best(row)])) continue;
      Floats sorted;
      for (float x : row) sorted.push_back(x == x ? x : kNever);
      std::sort(sorted.rbegin(), sorted.rend());
      for (int i = 0; i < size; ++i) expect(b[i] == (row[i] >= sorted[k - 1] ? row[i] : kNever), place("top-k", size, round));
    }
});

const Test judgements("log-probabilities, ranks and best ids are those of a sort", [] {
  Random random(4);
  for (const char* set : kSets)
    for (int size : kSizes) {
      Pool pool(2);
      Sampler sampler(pool, sampling::find_functions(set));
      for (int round = 0; round < 10; ++round) {
        Floats row = random_row(random, size);
        const int t = random.below(std::min(size, 300) + 1);
        const int64_t id = random.below(size);
        Floats values(1 + t);
        std::vector<int64_t> ranks(1 + t), top_ids(t);
        sampler.logprobs({row.data(), 1, size}, {id}, t, values.data(), ranks.data(), top_ids.data());
        for (float& x : row) x = x == x ? x : kNever;
        std::vector<int64_t> order(size);
        for (int i = 0; i < size; ++i) order[i] = i;
        const bool is_flat = !std::isfinite(row[plain_best(row)]);
        const float most = row[plain_best(row)];
        if (is_flat) for (float& x : row) x = x == most ? 0.0f : kNever;
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return row[a] > row[b]; });
        double sum = 0.0;
        for (float x : row) sum += std::exp(double(x) - double(row[order[0]]));
        for (int i = 0; i <= t; ++i) {
          const int64_t token = i ? order[i - 1] : id;
          const auto rank = std::count_if(row.begin(), row.end(), [&](float x) { return x >= row[token]; });
          expect(ranks[i] == rank && (i == 0 || top_ids[i - 1] == token), place(set, size, round));
          const double expected = double(row[token]) - double(row[order[0]]) - std::log(sum);
          if (std::isfinite(expected)) expect_near(values[i], expected, 1e-6 + std::abs(expected) * 1e-7, place(set, size, round));
          else expect(values[i] == kNever, place(set, size, round));
        }
      }
    }
});

const Test lookups("the n-gram index gives the answers of a search", [] {
  Random random(5);
  for (int round = 0; round < 100; ++round) {
    const int low = 1 + random.below(4), high = low + random.below(4), alphabet = 1 + random.below(5);
    const bool earliest = random.coin();
    NgramIndex index(low, high, earliest);
    std::vector<int64_t> text;
    while (text.size() < 120) {
      std::vector<int64_t> more(random.below(4));
      for (int64_t& token : more) token = random.below(alphabet);
      text.insert(text.end(), more.begin(), more.end());
      index.extend(more);
      int64_t expected = -1;
      const int n = int(text.size());
      for (int length = std::min(high, n); length >= low && expected < 0; --length)
        for (int end = length; end < n; ++end) {
          if (!std::equal(text.end() - length, text.end(), text.begin() + end - length)) continue;
          expected = end;
          if (earliest) break;
        }
      expect(index.find() == expected, place("round", n, round));
    }
  }
});

}  // namespace
}  // namespace specserve::test
