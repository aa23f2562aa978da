#include "session.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "argument.h"
#include "heddle/cpu.h"
#include "heddle/cuda_device.h"
#include "heddle/safetensors.h"

namespace heddle::bindings {
namespace {

// The devices on which models are loaded, in order of preference.
struct Session {
  std::vector<std::shared_ptr<Device>> devices;
};

Session open_session(const std::vector<DeviceName>& names, int threads, bool pin) {
  Session session;
  for (const DeviceName& name : names) {
    if (name.kind == DeviceKind::kCuda) {
      session.devices.push_back(cuda::CudaDevice::open(name.index));
    } else {
      ThreadPoolOptions options;
      options.threads = threads;
      options.pin = pin;
      session.devices.push_back(std::make_shared<CpuDevice>(options));
    }
  }
  return session;
}

using Keeping = std::vector<std::shared_ptr<Kept>>;

WeightSource weight_from(const std::string& name, nb::handle value, Keeping* keeping) {
  try {
    std::shared_ptr<Kept> kept = Kept::take(value, DType::kFloat32);
    const TensorView& view = kept->argument().view();
    if (view.device != DeviceKind::kCpu) {
      throw Error(ErrorKind::kInput, "wanted an array in host memory, got one on a CUDA device");
    }
    keeping->push_back(kept);
    return {name, view.dtype, view.shape, view.data, std::move(kept)};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    throw Error(ErrorKind::kInput, "weight '" + name + "': " + error.what());
  }
}

std::vector<WeightSource> weights_from_dict(nb::dict values, Keeping* keeping) {
  std::vector<WeightSource> sources;
  for (auto [name, value] : values) {
    std::string text;
    if (!nb::try_cast(name, text)) {
      throw Error(ErrorKind::kInput, std::string("weights: wanted names that are texts, got ") +
                                         text_of(nb::repr(name)));
    }
    sources.push_back(weight_from(text, value, keeping));
  }
  return sources;
}

// Copies the weights that are not dense, or not aligned, once it is known that they are wanted.
void settle(const Artifact& artifact, const Keeping& keeping, std::vector<WeightSource>* sources) {
  check_weights(artifact, *sources);
  for (size_t i = 0; i < keeping.size(); ++i) {
    const Argument& argument = keeping[i]->argument();
    if (argument.dense() && is_aligned(argument.view())) continue;
    keeping[i]->copy();
    (*sources)[i].data = argument.view().data;
  }
}

// The device that is wanted, or the first that the artifact has a program for; where none is, the
// first, which says so.
std::shared_ptr<Device> choose(const Session& session, const Artifact& artifact,
                               const std::optional<DeviceName>& wanted) {
  for (const std::shared_ptr<Device>& device : session.devices) {
    if (wanted) {
      if (name_of(*device) == *wanted) return device;
      continue;
    }
    for (const ProgramRecord& program : artifact.programs()) {
      if (static_cast<DeviceKind>(program.target) == device->kind()) return device;
    }
  }
  if (!wanted) return session.devices.front();
  std::string names;
  for (const std::shared_ptr<Device>& device : session.devices) {
    names += (names.empty() ? "" : ", ") + device->name();
  }
  throw Error(ErrorKind::kDevice, "InferenceSession.load: wanted a device of the session (" +
                                      names + "), got " + wanted->text());
}

ModelObject load(const Session& session, std::shared_ptr<const Artifact> artifact,
                 nb::handle weights, const std::optional<DeviceName>& device) {
  std::vector<WeightSource> sources;
  const bool mapping = nb::isinstance<nb::dict>(weights);
  Keeping keeping;
  if (mapping) sources = weights_from_dict(nb::borrow<nb::dict>(weights), &keeping);
  std::optional<std::string> path;
  if (!mapping && !weights.is_none()) path = path_text(weights);
  const ReleasedGil released;
  std::shared_ptr<const Safetensors> file;
  if (path) {
    file = Safetensors::open(*path);
    sources = weights_from(file);
  }
  auto program = Program::load(artifact, choose(session, *artifact, device));
  if (mapping) {
    const HeldGil gil;
    settle(*artifact, keeping, &sources);
    keeping.clear();
  }
  auto model = std::make_shared<const Model>(std::move(program), sources);
  if (file != nullptr) file->forget_pages();
  return {std::move(model)};
}

}  // namespace

void bind_session(nb::module_& module) {
  nb::class_<Session>(module, "Session", nb::is_final())
      .def(nb::new_(&open_session), nb::arg("devices"), nb::arg("threads"), nb::arg("pin"))
      .def("load", &load, nb::arg("artifact"), nb::arg("weights") = nb::none(),
           nb::arg("device") = nb::none());
}

}  // namespace heddle::bindings
