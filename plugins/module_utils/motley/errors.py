"""What a module fails with: what is wrong, and the command or edit that fixes it on a line of its own."""


class ModuleError(Exception):
    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(f"{what}\nfix: {fix}" if fix else what)
        self.fix = fix
