#include "heddle/model.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "describe.h"
#include "session.h"
#include "stream.h"
#include "tensors.h"

namespace heddle::bindings {
namespace {

std::string join(const std::vector<TensorSpec>& rows) {
  std::string text;
  for (const TensorSpec& row : rows) text += (text.empty() ? "" : ", ") + row.text;
  return text;
}

std::vector<TensorSpec> input_specs(const ModelObject& self) {
  return specs(self.artifact(), self.artifact().inputs());
}

std::vector<TensorSpec> output_specs(const ModelObject& self) {
  return specs(self.artifact(), self.artifact().outputs());
}

std::string signature(const ModelObject& self) {
  return std::string(self.artifact().name()) + "(" + join(input_specs(self)) + ") -> (" +
         join(output_specs(self)) + ")";
}

std::vector<std::string> archs(const ModelObject& self) {
  std::vector<std::string> names;
  const Program& program = self.model->program();
  for (uint32_t kernel = 0; kernel < program.record().kernels.count; ++kernel) {
    names.push_back(program.code().arch(kernel));
  }
  return names;
}

nb::object run_into(const ModelObject& self, const Tensors& inputs, nb::handle out, Stream stream) {
  const bool list = PyList_Check(out.ptr()) || PyTuple_Check(out.ptr());
  // An array is no list of its rows, which it would be to Python.
  const bool array =
      !list && (PyObject_CheckBuffer(out.ptr()) != 0 || nb::hasattr(out, "__dlpack__"));
  if (array || !(list || nb::hasattr(out, "__iter__"))) {
    throw Error(ErrorKind::kInput,
                std::string("out: wanted a list of arrays, one for each output, got ") +
                    text_of(array ? nb::inst_name(out) : nb::repr(out)));
  }
  nb::object targets = nb::steal(PySequence_Tuple(out.ptr()));
  if (!targets.is_valid()) throw nb::python_error();
  const auto count = static_cast<size_t>(PyTuple_Size(targets.ptr()));
  Tensors outputs(count);
  for (size_t i = 0; i < count; ++i) {
    outputs.take_out(self, PyTuple_GetItem(targets.ptr(), static_cast<Py_ssize_t>(i)), i, stream);
  }
  {
    const ReleasedGil released;
    self.model->execute(inputs.views(), outputs.views(), stream);
  }
  outputs.release_producers();
  return targets;
}

nb::object run(const ModelObject& self, const Tensors& inputs, Stream stream) {
  std::vector<Buffer> outputs;
  {
    const ReleasedGil released;
    outputs = self.model->execute(inputs.views(), stream);
  }
  nb::object results = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(outputs.size())));
  if (!results.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < outputs.size(); ++i) {
    PyTuple_SetItem(results.ptr(), static_cast<Py_ssize_t>(i),
                    wrap(std::move(outputs[i])).release().ptr());
  }
  return results;
}

// The keywords of a call: `out` and `stream`, where they are given.
struct Keywords {
  nb::handle out = Py_None;
  nb::handle stream = Py_None;
};

Keywords find_keywords(PyObject* const* values, PyObject* names) {
  Keywords found;
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_Size(names); ++i) {
    PyObject* name = PyTuple_GetItem(names, i);
    if (PyUnicode_CompareWithASCIIString(name, "out") == 0) {
      found.out = values[i];
    } else if (PyUnicode_CompareWithASCIIString(name, "stream") == 0) {
      found.stream = values[i];
    } else {
      PyErr_Format(PyExc_TypeError, "Model.execute: wanted the keywords 'out' and 'stream', got %R",
                   name);
      throw nb::python_error();
    }
  }
  return found;
}

// What a Python `Model` holds, unless it was never made.
const ModelObject& model_of(nb::handle self) {
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_TypeError, "wanted a Model, got one that was never loaded");
    throw nb::python_error();
  }
  return *nb::inst_ptr<ModelObject>(self);
}

// A model, its inputs and its outputs.
using ReplayedCall = std::tuple<nb::object, nb::tuple, nb::tuple>;

ReplayedCall replayed_call(nb::handle item) {
  ReplayedCall call;
  if (nb::try_cast(item, call) && nb::isinstance<ModelObject>(std::get<0>(call))) return call;
  throw Error(ErrorKind::kInput,
              std::string("replay: wanted calls as (model, inputs, outputs), the last two tuples, "
                          "got ") +
                  text_of(nb::repr(item)));
}

std::vector<double> replay(nb::handle calls, nb::handle repeats, nb::handle count) {
  const int repeats_wanted = count_from(repeats, 1, "replay: repeats");
  const int launches = count_from(count, 0, "replay: count");
  if (!nb::isinstance<nb::sequence>(calls)) {
    throw Error(ErrorKind::kInput,
                std::string("replay: wanted a list of calls, got ") + text_of(nb::repr(calls)));
  }
  std::vector<ReplayedCall> kept;  // a sequence may make its items when it is asked for them
  std::vector<std::unique_ptr<Tensors>> held;
  std::vector<Model::Prepared> prepared;
  for (nb::handle item : calls) {
    const auto& [model, inputs, outputs] = kept.emplace_back(replayed_call(item));
    const ModelObject& self = model_of(model);
    held.push_back(std::make_unique<Tensors>(inputs.size()));
    for (size_t i = 0; i < inputs.size(); ++i) {
      held.back()->take(self, nb::object(inputs[i]).ptr(), i);
    }
    held.back()->settle(self.model->program());
    const Span<TensorView> views = held.back()->views();
    held.push_back(std::make_unique<Tensors>(outputs.size()));
    for (size_t i = 0; i < outputs.size(); ++i) {
      held.back()->take_out(self, nb::object(outputs[i]).ptr(), i);
    }
    prepared.push_back({self.model.get(), views, held.back()->views()});
  }
  const ReleasedGil released;
  return Model::replay(prepared, repeats_wanted, launches);
}

nb::list profile(const ModelObject& self, nb::args values) {
  Tensors inputs(values.size());
  for (size_t i = 0; i < values.size(); ++i) inputs.take(self, nb::object(values[i]).ptr(), i);
  inputs.settle(self.model->program());
  std::vector<StepTime> times;
  {
    const ReleasedGil released;
    times = self.model->profile(inputs.views());
  }
  nb::list rows;
  for (const StepTime& time : times) {
    nb::dict row;
    row["kernel"] = std::string(time.kernel);
    row["label"] = std::string(time.label);
    row["seconds"] = 1e-9 * static_cast<double>(time.nanoseconds);
    row["work"] = time.work;
    row["bytes"] = time.bytes;
    rows.append(row);
  }
  return rows;
}

// `Model.execute(*inputs, out=None)`, as a plain method of CPython: nothing lies between.
PyObject* execute(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guarded([&] {
    const ModelObject& model = model_of(self);
    const Keywords keywords = find_keywords(values + count, names);
    Stream stream;
    if (!keywords.stream.is_none()) {
      stream = stream_from(keywords.stream, *model.model->program().device());
    }
    Tensors inputs(static_cast<size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      inputs.take(model, values[i], static_cast<size_t>(i), stream);
    }
    inputs.settle(model.model->program());
    nb::object results = keywords.out.is_none() ? run(model, inputs, stream)
                                                : run_into(model, inputs, keywords.out, stream);
    inputs.release_producers();
    return results.release().ptr();
  });
}

PyObject* call(PyObject* self, PyObject* positional, PyObject* named) {
  nb::object method = nb::handle(self).attr("execute");
  return PyObject_Call(method.ptr(), positional, named);
}

PyMethodDef methods[] = {
    {"execute", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&execute)),
     METH_FASTCALL | METH_KEYWORDS, "execute(*inputs, out=None, stream=None): run the model."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_methods, methods}, {Py_tp_call, reinterpret_cast<void*>(&call)}, {0, nullptr}};

}  // namespace

void bind_model(nb::module_& module) {
  module.def("replay", &replay, nb::arg("calls").none(), nb::arg("repeats").none() = 1,
             nb::arg("count").none() = 1);
  nb::class_<TensorSpec>(module, "TensorSpec", "Name, dtype and shape of an input or output.")
      .def_ro("name", &TensorSpec::name)
      .def_ro("dtype", &TensorSpec::dtype)
      .def_ro("shape", &TensorSpec::shape)
      .def("__repr__", [](const TensorSpec& self) { return self.text; });
  nb::class_<ModelObject>(module, "Model", nb::type_slots(slots), nb::is_final(),
                          "A loaded model: call `execute`.")
      .def("profile", &profile)
      .def_prop_ro("name",
                   [](const ModelObject& self) { return std::string(self.artifact().name()); })
      .def_prop_ro("artifact",
                   [](const ModelObject& self) { return self.model->program().artifact_ptr(); })
      .def_prop_ro("device",
                   [](const ModelObject& self) { return name_of(*self.model->program().device()); })
      .def_prop_ro("input_metadata", &input_specs)
      .def_prop_ro("output_metadata", &output_specs)
      .def_prop_ro("signature", &signature)
      .def_prop_ro("archs", &archs)
      .def_prop_ro(
          "diagnostics",
          [](const ModelObject& self) { return self.model->program().code().diagnostics(); })
      .def_prop_ro("state_bytes", [](const ModelObject& self) { return self.model->state_size(); })
      .def("__repr__", [](const ModelObject& self) { return "Model(" + signature(self) + ")"; });
  bind_session(module);
}

}  // namespace heddle::bindings
