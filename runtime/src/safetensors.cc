#include "heddle/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "heddle/error.h"
#include "json.h"

// The format: https://github.com/huggingface/safetensors#format

namespace heddle {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;

struct Row {
  const char* name;
  DType dtype;
};

constexpr Row kRows[] = {{"BOOL", DType::kBool},         {"I8", DType::kInt8},
                         {"I16", DType::kInt16},         {"I32", DType::kInt32},
                         {"I64", DType::kInt64},         {"U8", DType::kUInt8},
                         {"U16", DType::kUInt16},        {"U32", DType::kUInt32},
                         {"U64", DType::kUInt64},        {"F16", DType::kFloat16},
                         {"BF16", DType::kBFloat16},     {"F32", DType::kFloat32},
                         {"F64", DType::kFloat64},       {"F8_E4M3", DType::kFloat8E4M3FN},
                         {"F8_E5M2", DType::kFloat8E5M2}};

/// One tensor of the header; the offsets count from the end of the header.
struct Entry {
  std::string name;
  std::optional<DType> dtype;
  std::optional<Shape> shape;
  int64_t begin = -1;
  int64_t end = -1;
};

DType parse_dtype(const Entry& entry, const std::string& name) {
  for (const Row& row : kRows) {
    if (name == row.name) return row.dtype;
  }
  fail(ArtifactReason::kWeights, "tensor '" + entry.name + "'", "a dtype that Heddle has",
       "'" + name + "'");
}

Shape parse_shape(JsonReader& json, const Entry& entry) {
  int64_t sizes[kMaxRank];
  size_t rank = 0;
  json.expect('[');
  if (json.take(']')) return {};
  do {
    if (rank == kMaxRank) {
      fail(ArtifactReason::kWeights, "tensor '" + entry.name + "'", "at most 16 dimensions",
           "more");
    }
    sizes[rank++] = json.number();
  } while (json.take(','));
  json.expect(']');
  return Shape(sizes, rank);
}

void parse_entry(JsonReader& json, Entry* entry) {
  json.expect('{');
  do {
    std::string key = json.string();
    json.expect(':');
    if (key == "dtype" && !entry->dtype) {
      entry->dtype = parse_dtype(*entry, json.string());
    } else if (key == "shape" && !entry->shape) {
      entry->shape = parse_shape(json, *entry);
    } else if (key == "data_offsets" && entry->begin < 0) {
      json.expect('[');
      entry->begin = json.number();
      json.expect(',');
      entry->end = json.number();
      json.expect(']');
    } else {
      fail(ArtifactReason::kWeights, "tensor '" + entry->name + "'",
           "dtype, shape and data_offsets, once each", "'" + key + "'");
    }
  } while (json.take(','));
  json.expect('}');
  if (!entry->dtype || !entry->shape || entry->begin < 0) {
    fail(ArtifactReason::kWeights, "tensor '" + entry->name + "'", "dtype, shape and data_offsets",
         "fewer");
  }
}

void skip_metadata(JsonReader& json) {
  json.expect('{');
  if (json.take('}')) return;
  do {
    json.string();
    json.expect(':');
    json.string();
  } while (json.take(','));
  json.expect('}');
}

std::vector<Entry> parse_header(std::string_view header) {
  std::vector<Entry> entries;
  JsonReader json(header);
  json.expect('{');
  if (!json.take('}')) {
    do {
      Entry entry;
      entry.name = json.string();
      json.expect(':');
      if (entry.name == "__metadata__") {
        skip_metadata(json);
      } else {
        parse_entry(json, &entry);
        entries.push_back(std::move(entry));
      }
    } while (json.take(','));
    json.expect('}');
  }
  json.end();
  return entries;
}

/// The tensors lie one behind the other and fill the file; names differ.
void check_layout(const std::vector<Entry>& entries, int64_t size) {
  std::vector<const Entry*> order;
  for (const Entry& entry : entries) {
    const auto bytes = entry.shape->bytes(*entry.dtype);
    if (!bytes) {
      fail(ArtifactReason::kWeights, "tensor '" + entry.name + "'",
           "a shape that fits 63 bits in bytes", entry.shape->text());
    }
    if (entry.end - entry.begin != *bytes) {
      fail(ArtifactReason::kWeights, "tensor '" + entry.name + "', data_offsets",
           std::to_string(*bytes) + " bytes", std::to_string(entry.end - entry.begin));
    }
    if (entry.end > size) {
      fail(ArtifactReason::kWeights, "tensor '" + entry.name + "', data_offsets",
           "an end inside the file's " + std::to_string(size) + " bytes of data",
           std::to_string(entry.end));
    }
    order.push_back(&entry);
  }
  auto by_name = [](const Entry* a, const Entry* b) { return a->name < b->name; };
  std::sort(order.begin(), order.end(), by_name);
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->name == order[i - 1]->name) {
      fail(ArtifactReason::kWeights, "tensor '" + order[i]->name + "'", "names that differ",
           "it twice");
    }
  }
  auto by_place = [](const Entry* a, const Entry* b) {
    return std::make_pair(a->begin, a->end) < std::make_pair(b->begin, b->end);
  };
  std::sort(order.begin(), order.end(), by_place);
  int64_t end = 0;
  for (const Entry* entry : order) {
    if (entry->begin != end) {
      fail(ArtifactReason::kWeights, "tensor '" + entry->name + "', data_offsets",
           "a begin of " + std::to_string(end) + ", the end of the tensor before",
           std::to_string(entry->begin));
    }
    end = entry->end;
  }
  if (end != size) {
    fail(ArtifactReason::kWeights, "data",
         std::to_string(end) + " bytes, the end of the last tensor", std::to_string(size));
  }
}

}  // namespace

std::shared_ptr<const Safetensors> Safetensors::open(const std::string& path) {
  std::shared_ptr<Safetensors> result(new Safetensors());
  result->path_ = path;
  result->file_ = MappedFile::open(path);
  const uint8_t* data = result->file_->data();
  uint64_t size = result->file_->size();
  try {
    if (size < kLengthBytes) {
      fail(ArtifactReason::kWeights, "file", "8 bytes or more", std::to_string(size));
    }
    uint64_t length;
    std::memcpy(&length, data, sizeof(length));
    const bool foreign =
        size > kLengthBytes && std::strchr("{ \t\r\n", data[kLengthBytes]) == nullptr;
    if (length > kLargestHeader || foreign) {
      throw Error(ArtifactReason::kWeights, "wanted a safetensors file, got another");
    }
    uint64_t room = std::min(size - kLengthBytes, kLargestHeader);
    if (length > room) {
      fail(ArtifactReason::kWeights, "header", "at most " + std::to_string(room) + " bytes",
           std::to_string(length));
    }
    const uint8_t* start = data + kLengthBytes + length;
    auto entries = parse_header({reinterpret_cast<const char*>(data + kLengthBytes), length});
    check_layout(entries, static_cast<int64_t>(size - kLengthBytes - length));
    for (Entry& entry : entries) {
      result->tensors_.push_back(
          {std::move(entry.name), *entry.dtype, *entry.shape, start + entry.begin});
    }
  } catch (const Error& error) {
    throw Error(ArtifactReason::kWeights, path + ": " + error.what());
  }
  return result;
}

}  // namespace heddle
