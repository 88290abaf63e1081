// A fuzz target without libFuzzer: calls it once with each file of a folder, its corpus.
//
//   build/fuzz/quantity tests/fuzz/corpus/quantity
//
// 0: all were taken; 2: there are none. A claim that doesn't hold ends the process, and the last
// name that was printed is that of the input.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

namespace {

std::vector<std::filesystem::path> FilesOf(const char* folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  size_t inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const std::filesystem::path& path : FilesOf(argv[i])) {
      std::fprintf(stderr, "%s\n", path.c_str());
      std::ifstream file(path, std::ios::binary);
      const std::string input{std::istreambuf_iterator<char>(file), {}};
      // A copy of exactly its size: what is read past the end is noticed by a sanitizer.
      const std::vector<uint8_t> bytes(input.begin(), input.end());
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
      ++inputs;
    }
  }
  std::printf("%zu inputs\n", inputs);
  return inputs > 0 ? 0 : 2;
}
