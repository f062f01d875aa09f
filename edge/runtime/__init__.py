"""L2: the engine as a supervised child process. How the agent puts it together:

    library = Library(settings.home() / "models")                      # edge.packages.library
    package = library.show("smollm2-135m-instruct")                    # or library.pull(...), import_path(...)
    plan = plan_engine(package, probe(), PlanRequest(...))             # edge.runtime.plan, edge.devices.probe
    engine = SupervisedEngine(plan, clock=clock, run_dir=run_dir)      # edge.runtime.supervisor, an `Engine` (port.py)
    await engine.start()

`plan_engine` raises SettingsError (InsufficientMemory names needed and free bytes) before any process is started;
after that a bad model or a crash is a status, never an exception.
"""
