// Runs every test, or those whose claim contains the argument; the exit status is 1 when one fails.
#include <cstdio>
#include <cstring>

#include "check.h"
#include "kernels.h"

namespace specserve::test {

static std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

Test::Test(const char* claim, std::function<void()> run) : claim(claim), run(std::move(run)) { tests().push_back(*this); }

static int run_all(const char* wanted) {
  int num_run = 0, num_failed = 0;
  for (const Test& test : tests()) {
    if (!std::strstr(test.claim, wanted)) continue;
    ++num_run;
    try {
      test.run();
    } catch (const std::exception& error) {
      ++num_failed;
      std::printf("FAILED %s\n       %s\n", test.claim, error.what());
    }
  }
  std::printf("%d tests, %d failed; instruction sets:", num_run, num_failed);
  for (const Kernels* kernels : all_kernels()) std::printf(" %s", kernels->name);
  std::printf("\n");
  return num_run == 0 || num_failed > 0;
}

}  // namespace specserve::test

int main(int count, char** arguments) { return specserve::test::run_all(count > 1 ? arguments[1] : ""); }
