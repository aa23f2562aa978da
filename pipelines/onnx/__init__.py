"""ONNX files as graphs: `load("model.onnx")`.

file.py       opens and checks a file, and inlines its functions
inputs.py     the types of the inputs: names for sizes that are not known
values.py     what a name in the file stands for: a tensor, or numbers that are known
node.py       one node of the file, as operators read it
importer.py   walks the nodes; what is known is computed while it does
known.py      what is computed of sizes while a file is read
operators/    a function for each operator, by family
"""

from heddle.pipelines.onnx.importer import Imported, load

__all__ = ["Imported", "load"]
