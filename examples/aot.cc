// Runs an artifact on the CPU, without Python:
//
//   aot model.heddle [weights.safetensors] [batch=2 sequence=128] [tokens=int64:1,2,3]
//
// `name=number` sets a symbolic dim (the smallest of its range, or 1, where it is not set);
// `name=dtype:v,v,...` fills an input, again from the start where there are fewer values than
// elements. Other inputs are filled with ones.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "heddle/artifact.h"
#include "heddle/cpu.h"
#include "heddle/error.h"
#include "heddle/model.h"
#include "heddle/safetensors.h"
#include "heddle/sizes.h"

namespace {

using heddle::Artifact;
using heddle::Buffer;
using heddle::DType;
using Clock = std::chrono::steady_clock;

constexpr int kRuns = 20;
constexpr int64_t kValuesShown = 8;

double milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

[[noreturn]] void refuse(const std::string& message) {
  throw heddle::Error(heddle::ErrorKind::kInput, message);
}

// Has 64 bits on x86, so that it holds each integer.
using Number = long double;

template <class T>
void fill_with(void* data, int64_t count, const std::vector<Number>& values) {
  for (Number value : values) {
    const bool fits = value >= static_cast<Number>(std::numeric_limits<T>::lowest()) &&
                      value < std::ldexp(Number{1}, std::numeric_limits<T>::digits);
    if (std::is_integral_v<T> && (!fits || value != std::floor(value))) {
      std::ostringstream text;
      text << "wanted an integer of " << 8 * sizeof(T) << " bits, got " << value;
      refuse(text.str());
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    static_cast<T*>(data)[i] = static_cast<T>(values[static_cast<size_t>(i) % values.size()]);
  }
}

/// Ones, of which C++ has no type: by their bits.
template <class T>
void fill_with_ones(void* data, int64_t count, const std::vector<Number>& values, T one) {
  if (values != std::vector<Number>{1}) {
    refuse("this example fills inputs of floats of 16 and 8 bits with ones alone");
  }
  std::fill_n(static_cast<T*>(data), count, one);
}

/// Repeats `values` through the whole buffer.
void fill(const Buffer& buffer, const std::vector<Number>& values) {
  int64_t count = static_cast<int64_t>(buffer.bytes() / heddle::dtype_size(buffer.dtype()));
  switch (buffer.dtype()) {
    case DType::kBool:
    case DType::kUInt8:
      return fill_with<uint8_t>(buffer.data(), count, values);
    case DType::kInt8:
      return fill_with<int8_t>(buffer.data(), count, values);
    case DType::kInt16:
      return fill_with<int16_t>(buffer.data(), count, values);
    case DType::kInt32:
      return fill_with<int32_t>(buffer.data(), count, values);
    case DType::kInt64:
      return fill_with<int64_t>(buffer.data(), count, values);
    case DType::kUInt16:
      return fill_with<uint16_t>(buffer.data(), count, values);
    case DType::kUInt32:
      return fill_with<uint32_t>(buffer.data(), count, values);
    case DType::kUInt64:
      return fill_with<uint64_t>(buffer.data(), count, values);
    case DType::kFloat32:
      return fill_with<float>(buffer.data(), count, values);
    case DType::kFloat64:
      return fill_with<double>(buffer.data(), count, values);
    case DType::kFloat16:
      return fill_with_ones<uint16_t>(buffer.data(), count, values, 0x3C00);
    case DType::kBFloat16:
      return fill_with_ones<uint16_t>(buffer.data(), count, values, 0x3F80);
    case DType::kFloat8E4M3FN:
      return fill_with_ones<uint8_t>(buffer.data(), count, values, 0x38);
    case DType::kFloat8E5M2:
      return fill_with_ones<uint8_t>(buffer.data(), count, values, 0x3C);
  }
}

void show(const Buffer& buffer, const std::string& name) {
  std::printf("%s: %s%s", name.c_str(), heddle::dtype_name(buffer.dtype()),
              buffer.shape().text().c_str());
  if (buffer.dtype() == DType::kFloat32) {
    int64_t count = std::min<int64_t>(static_cast<int64_t>(buffer.bytes() / 4), kValuesShown);
    for (int64_t i = 0; i < count; ++i) {
      std::printf(" %.6g", static_cast<double>(static_cast<const float*>(buffer.data())[i]));
    }
  }
  std::printf("\n");
}

/// What the command line says: `name` to the text behind the `=`.
using Settings = std::map<std::string, std::string>;

/// The number that `text` is, by one of C's readers of numbers.
template <class Read>
auto parse(const std::string& name, const std::string& text, Read read) {
  char* end = nullptr;
  errno = 0;
  auto value = read(text.c_str(), &end);
  if (text.empty() || *end != '\0' || errno != 0) {
    refuse(name + ": wanted a number, got '" + text + "'");
  }
  return value;
}

/// Refuses a setting that is neither a symbol nor an input.
void check_names(const Artifact& artifact, const Settings& settings) {
  std::vector<std::string> names;
  for (const auto& symbol : artifact.symbols()) names.emplace_back(artifact.text(symbol.name));
  for (const auto& input : artifact.inputs()) names.emplace_back(artifact.text(input.name));
  for (const auto& setting : settings) {
    if (std::find(names.begin(), names.end(), setting.first) != names.end()) continue;
    std::string known;
    for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
    refuse("wanted one of " + known + ", got '" + setting.first + "'");
  }
}

std::vector<Number> parse_values(const Settings& settings, const std::string& name, DType dtype) {
  auto found = settings.find(name);
  if (found == settings.end()) return {1};
  const std::string prefix = std::string(heddle::dtype_name(dtype)) + ":";
  if (found->second.rfind(prefix, 0) != 0) {
    refuse("input '" + name + "': wanted " + prefix + "..., got " + found->second);
  }
  std::stringstream text(found->second.substr(prefix.size()));
  std::vector<Number> values;
  for (std::string value; std::getline(text, value, ',');) {
    values.push_back(parse(name, value, std::strtold));
  }
  if (values.empty()) refuse("input '" + name + "': wanted values, got none");
  return values;
}

std::vector<int64_t> choose_symbols(const Artifact& artifact, const Settings& settings) {
  std::vector<int64_t> values;
  for (const heddle::SymbolRecord& symbol : artifact.symbols()) {
    const std::string name(artifact.text(symbol.name));
    auto read = [](const char* text, char** end) { return std::strtoll(text, end, 10); };
    auto found = settings.find(name);
    values.push_back(found == settings.end() ? std::max<int64_t>(symbol.minimum, 1)
                                             : parse(name, found->second, read));
  }
  return values;
}

std::vector<Buffer> make_inputs(const Artifact& artifact,
                                const std::shared_ptr<heddle::Device>& device,
                                const Settings& settings) {
  std::vector<int64_t> sizes = heddle::evaluate_sizes(artifact, choose_symbols(artifact, settings));
  std::vector<Buffer> inputs;
  for (const heddle::TensorRecord& input : artifact.inputs()) {
    std::vector<int64_t> shape;
    for (heddle::Slot slot : artifact.dims(input.shape)) shape.push_back(sizes[slot]);
    DType dtype = static_cast<DType>(input.dtype);
    inputs.push_back(Buffer::allocate(device, dtype, {shape.data(), shape.size()}));
    fill(inputs.back(), parse_values(settings, std::string(artifact.text(input.name)), dtype));
  }
  return inputs;
}

std::vector<heddle::WeightSource> map_weights(const std::string& path) {
  if (path.empty()) return {};
  return heddle::weights_from(heddle::Safetensors::open(path));
}

void run(const std::string& path, const std::string& weights, const Settings& settings) {
  auto start = Clock::now();
  auto device = std::make_shared<heddle::CpuDevice>();
  auto artifact = Artifact::open(path);
  auto opened = Clock::now();
  check_names(*artifact, settings);
  heddle::Model model(heddle::Program::load(artifact, device), map_weights(weights));
  auto loaded = Clock::now();

  std::vector<Buffer> inputs = make_inputs(*artifact, device, settings);
  const std::vector<heddle::TensorView> views = heddle::views(inputs);

  auto before = Clock::now();
  std::vector<Buffer> outputs = model.execute(views);
  auto first = Clock::now() - before;
  std::vector<Clock::duration> times;
  for (int i = 0; i < kRuns; ++i) {
    before = Clock::now();
    outputs = model.execute(views);
    times.push_back(Clock::now() - before);
  }
  std::sort(times.begin(), times.end());

  for (size_t i = 0; i < outputs.size(); ++i) {
    show(outputs[i], std::string(artifact->text(artifact->outputs()[i].name)));
  }
  std::printf("open %.3f ms, load %.3f ms, first run %.3f ms, median of %d runs %.4f ms\n",
              milliseconds(opened - start), milliseconds(loaded - opened), milliseconds(first),
              kRuns, milliseconds(times[kRuns / 2]));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: aot model.heddle [weights.safetensors] [dim=2] [input=int64:1,2]\n");
    return 2;
  }
  std::string weights;
  Settings settings;
  for (int i = 2; i < argc; ++i) {
    const char* equals = std::strchr(argv[i], '=');
    if (equals == nullptr) {
      weights = argv[i];
    } else {
      settings[std::string(argv[i], static_cast<size_t>(equals - argv[i]))] = equals + 1;
    }
  }
  try {
    run(argv[1], weights, settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "aot: %s\n", error.what());
    return 1;
  }
  return 0;
}
