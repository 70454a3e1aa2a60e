"""Makes the protobuf and gRPC stubs while the package is built: they are built, never committed."""

import shutil
from pathlib import Path
from typing import ClassVar

from setuptools import Command, setup
from setuptools.command.build import build
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
PACKED = HERE / "proto"  # in a source distribution
PROTOS = PACKED if PACKED.is_dir() else HERE.parents[1] / "proto"


class BuildStubs(Command):
    """kvtriage/v1/*_pb2.py, with types, into the build folder (or beside the sources: --inplace)."""

    description = "make the protobuf and gRPC stubs"
    user_options: ClassVar = [("inplace", "i", "write beside the sources, for work in the checkout")]
    boolean_options: ClassVar = ["inplace"]
    editable_mode = False

    def initialize_options(self) -> None:
        self.inplace = False
        self.build_lib = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        from importlib.resources import files

        from grpc_tools import protoc

        into = HERE / "src" if self.inplace or self.editable_mode else Path(self.build_lib)
        package = into / "kvtriage" / "v1"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text('"""Generated from proto/kvtriage/v1."""\n')
        sources = sorted(str(path) for path in (PROTOS / "kvtriage" / "v1").glob("*.proto"))
        if not sources:
            raise SystemExit(f"no .proto files under {PROTOS}")
        includes = [f"-I{PROTOS}", f"-I{files('grpc_tools') / '_proto'}"]
        outputs = [f"--{kind}={into}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
        if protoc.main(["protoc", *includes, *outputs, *sources]) != 0:
            raise SystemExit("protoc failed")

    def get_source_files(self) -> list[str]:
        return []

    def get_outputs(self) -> list[str]:
        return []

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class PackProtos(sdist):
    """A source distribution carries the .proto files that it needs."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        shutil.copytree(PROTOS, Path(base_dir) / "proto", dirs_exist_ok=True)


build.sub_commands.append(("build_stubs", None))
setup(cmdclass={"build_stubs": BuildStubs, "sdist": PackProtos})
