"""ONNX files as graphs: `load("model.onnx")`.

file.py       opens and checks a file, and inlines its functions
inputs.py     the types of the inputs: names for sizes that are not known
values.py     what a name in the file stands for: a tensor, or numbers that are known
node.py       one node of the file, as operators read it
known.py      what is computed of sizes while a file is read
importer.py   walks the nodes; what is known is computed while it does
table.py      the table of operators, which each function enters itself in
operators/    a function for each operator, by family
"""

from heddle.pipelines.onnx.importer import Imported, load

__all__ = ["Imported", "load"]
