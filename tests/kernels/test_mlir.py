import pytest

from heddle.kernels import mlir


def test_the_bindings_are_there():
    assert mlir.PROVIDER in mlir.PROVIDERS
    with mlir.context():
        module = mlir.ir.Module.parse("module {}")
    assert mlir.dialect("llvm").__name__ == f"{mlir.PROVIDER}.dialects.llvm"
    assert str(module).strip() == "module {\n}"


def test_a_genuine_package_is_preferred_where_it_is_complete(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "placeholder").mkdir()
    (tmp_path / "placeholder" / "__init__.py").write_text("")
    assert mlir.provider(("placeholder", mlir.PROVIDER)) == mlir.PROVIDER
    for name in ("", "_mlir_libs", "dialects"):
        folder = tmp_path / "genuine" / name
        folder.mkdir()
        (folder / "__init__.py").write_text("")
    for name in ("ext", "x86"):
        (tmp_path / "genuine" / "dialects" / f"{name}.py").write_text("")
    assert mlir.provider(("genuine", mlir.PROVIDER)) == "genuine"


def test_no_bindings_invalid():
    with pytest.raises(ImportError, match=r"wanted absent with .*; pip install 'heddle\[comp"):
        mlir.provider(("absent",))
