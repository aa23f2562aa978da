#include "heddle/safetensors.h"

#include <memory>
#include <string>
#include <utility>

#include "bindings.h"

namespace heddle::bindings {
namespace {

using File = std::shared_ptr<const Safetensors>;

File open_file(nb::handle path) {
  const std::string text = path_text(path);
  const ReleasedGil released;
  return Safetensors::open(text);
}

nb::dict tensors(const File& file) {
  const std::shared_ptr<Device> host = memory_device({});
  nb::dict found;
  for (const NamedTensor& tensor : file->tensors()) {
    auto storage = Storage::borrow(host, const_cast<void*>(tensor.data),
                                   static_cast<size_t>(*tensor.shape.bytes(tensor.dtype)),
                                   std::const_pointer_cast<Safetensors>(file));
    found[nb::str(tensor.name.data(), tensor.name.size())] =
        wrap(Buffer(std::move(storage), tensor.dtype, tensor.shape), false);
  }
  return found;
}

}  // namespace

void bind_safetensors(nb::module_& module) {
  struct Mapping {
    File file;
  };
  nb::class_<Mapping>(module, "Safetensors", nb::is_final())
      .def(nb::new_([](nb::handle path) { return Mapping{open_file(path)}; }),
           nb::arg("path").none())
      .def("tensors", [](const Mapping& self) { return tensors(self.file); })
      .def("forget_pages", [](const Mapping& self) { self.file->forget_pages(); });
}

}  // namespace heddle::bindings
