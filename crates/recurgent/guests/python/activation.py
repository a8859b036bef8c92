class ActivationFailed(Exception):
    """A declared package that is installed but does not load."""

    def __init__(self, package, problem):
        super().__init__(f"{package}: {class_name(type(problem))}: {message_of(problem)}")
        self.package = package


def activate(report, library, *packages):
    """Makes the packages in `library` importable, and proves it: each of `packages` is a name, `=`
    and the modules of which one must load, best first. `report` is called with each name before."""
    import importlib
    import site
    site.addsitedir(library)
    importlib.invalidate_caches()
    sys.prefix = sys.exec_prefix = os.path.dirname(os.path.dirname(os.path.dirname(library)))
    for package in packages:
        name, _, modules = package.partition("=")
        report(name)
        problem = None
        for module in filter(None, modules.split(",")):
            try:
                importlib.import_module(module)
                break
            except BaseException as trouble:  # a module may even exit
                problem = problem or trouble
        else:
            if problem:
                raise ActivationFailed(name, problem)
