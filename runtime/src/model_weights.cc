#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "heddle/error.h"
#include "heddle/model.h"

namespace heddle {
namespace {

constexpr size_t kNamesShown = 10;

// A CPU uses larger weights where they are. Smaller ones lie between them in a mapped file, where
// one touch brings in up to 2 MiB of neighbours that were packed and are not needed any more.
constexpr size_t kCopiedBytes = 64 * 1024;

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    text += (i > 0 ? ", '" : "'") + names[i] + "'";
  }
  if (names.size() > kNamesShown) {
    text += " and " + std::to_string(names.size() - kNamesShown) + " more";
  }
  return text;
}

[[noreturn]] void refuse(const Artifact& artifact, const std::string& message) {
  throw Error(ArtifactReason::kWeights, artifact.path() + ": " + message);
}

using Given = std::unordered_map<std::string_view, const WeightSource*>;

/// The weights by name.
Given by_name(const Artifact& artifact, const std::vector<WeightSource>& weights) {
  Given given;
  for (const WeightSource& weight : weights) {
    if (!given.emplace(weight.name, &weight).second) {
      refuse(artifact, "weights: '" + weight.name + "' is given twice");
    }
  }
  return given;
}

/// Refuses weights whose names are not just those that are wanted.
void check_names(const Artifact& artifact, const Given& given) {
  std::vector<std::string> missing, extra, settled;
  size_t needed = 0;
  std::unordered_map<std::string_view, const WeightRecord*> wanted;
  for (const WeightRecord& record : artifact.weights()) {
    const std::string_view name = artifact.text(record.name);
    wanted.emplace(name, &record);
    const bool held = (record.flags & (kWeightEmbedded | kWeightSettled)) != 0;
    if (!held) ++needed;
    if (given.count(name) > 0) {
      if (record.flags & kWeightSettled) settled.emplace_back(name);
    } else if (!held) {
      missing.emplace_back(name);
    }
  }
  for (const auto& item : given) {
    if (wanted.count(item.first) == 0) extra.emplace_back(item.first);
  }
  std::sort(extra.begin(), extra.end());
  if (!missing.empty()) {
    refuse(artifact, "weights: wanted " + std::to_string(needed) + ", and " +
                         std::to_string(missing.size()) + " not given: " + listed(missing) +
                         " (give them when loading, or embed them when compiling)");
  }
  if (!extra.empty()) refuse(artifact, "weights: given, and not wanted: " + listed(extra));
  if (!settled.empty()) {
    refuse(artifact, "weights: given, but the artifact holds them as its kernels read them: " +
                         listed(settled) + " (give none, or do not embed them when compiling)");
  }
}

void check_type(const Artifact& artifact, const WeightRecord& record, const WeightSource& given) {
  DType dtype = static_cast<DType>(record.dtype);
  Shape shape = artifact.shape(record);
  if (given.dtype != dtype || given.shape != shape) {
    refuse(artifact, "weight '" + given.name + "': wanted " + dtype_name(dtype) + shape.text() +
                         ", got " + dtype_name(given.dtype) + given.shape.text());
  }
  if (given.data == nullptr && record.size > 0) {
    refuse(artifact, "weight '" + given.name + "': wanted memory, got a null pointer");
  }
}

InPlace at(const void* data, size_t size, std::string name) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin + size, std::move(name)};
}

/// In ascending order; of those that share bytes, the first is all.
std::vector<InPlace> joined(std::vector<InPlace> rows) {
  std::sort(rows.begin(), rows.end(),
            [](const InPlace& a, const InPlace& b) { return a.begin < b.begin; });
  std::vector<InPlace> apart;
  for (InPlace& row : rows) {
    if (apart.empty() || row.begin >= apart.back().end) {
      apart.push_back(std::move(row));
    } else {
      apart.back().end = std::max(apart.back().end, row.end);
    }
  }
  return apart;
}

}  // namespace

std::vector<WeightSource> weights_from(const std::shared_ptr<const Safetensors>& file) {
  std::vector<WeightSource> weights;
  for (const NamedTensor& tensor : not_null(file, "weights: file")->tensors()) {
    weights.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.data, file});
  }
  return weights;
}

void check_weights(const Artifact& artifact, const std::vector<WeightSource>& weights) {
  const Given given = by_name(artifact, weights);
  check_names(artifact, given);
  for (const WeightRecord& record : artifact.weights()) {
    const auto found = given.find(artifact.text(record.name));
    if (found != given.end()) check_type(artifact, record, *found->second);
  }
}

void Model::bind(const std::vector<WeightSource>& weights) {
  const Artifact& artifact = program_->artifact();
  const std::shared_ptr<Device>& device = program_->device();
  check_weights(artifact, weights);
  const Given given = by_name(artifact, weights);
  auto place = [&](const void* data, size_t size) {
    if (device->kind() == DeviceKind::kCpu && size > kCopiedBytes) return const_cast<void*>(data);
    std::shared_ptr<Storage> storage = Storage::allocate(device, size, MemoryKind::kWeights);
    device->copy_from_host(storage->data(), data, size);
    owners_.push_back(storage);
    return storage->data();
  };
  for (const WeightRecord& record : artifact.weights()) {
    if (record.flags & kWeightSettled) {
      weights_.push_back(nullptr);  // No buffer is this one.
      continue;
    }
    auto found = given.find(artifact.text(record.name));
    const void* data = nullptr;
    if (found == given.end()) {
      data = artifact.embedded(record);
    } else {
      data = found->second->data;
    }
    weights_.push_back(place(data, record.size));
    if (found != given.end() && weights_.back() == data) {
      owners_.push_back(found->second->owner);
      in_place_.push_back(at(data, record.size, "weight '" + found->second->name + "'"));
    }
  }
  for (const ConstantRecord& record : artifact.constants()) {
    constants_.push_back(place(artifact.constant(record), record.size));
  }
  if (device->kind() == DeviceKind::kCpu) {
    in_place_.push_back(at(artifact.data(), artifact.size(), "the artifact " + artifact.path()));
  }
  in_place_ = joined(std::move(in_place_));
}

}  // namespace heddle
