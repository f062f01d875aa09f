"""L1: model packages: what a file claims to be, whether it is that, and which version of it is installed.

The public face is `edge.packages.library.Library(root)`:

    pull(source, *, progress=None) -> Package          a catalogue name, a `.whl` or a `.gguf` file
    import_path(path, name, *, progress=None) -> Package
    installed() -> tuple[Package, ...]
    show(name) -> Package                              raises NotFound
    verify(name, *, progress=None) -> Package          raises a TrustError

`Package` has `name`, `digest` (`sha256:` + 64 hex digits of the model file), `manifest` (pydantic; `model_dump()` for
`--json`), `folder`, `model_path`. `progress` is called with a `Progress(step, done_bytes, total_bytes)` of
`edge.packages.progress`. All of it blocks: call it in a thread from a running event loop.
"""
