"""Honest mistakes as changes of a syntax tree, to be applied to every right submission.

A mutation that finds nothing to change in a style does not apply to it. What it must lead to is stated
beside it; the verdict cannot rest on the text, since the same mistake is made in many texts.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

Visit = Callable[[ast.AST], ast.AST | list[ast.stmt] | None]  # None leaves a node as it is

WRAPPERS = {"DataParallel", "Parallel", "wrap"}  # what the right styles call the wrapper
MODELS = {"model", "network"}  # what they call the wrapped model


@dataclass(frozen=True)
class Mutation:
    """A named change, the check that must fail and a phrase of what the learner then reads."""

    name: str
    visit: Visit
    fails: str
    says: str
    helper: str = ""  # code that the changed script needs, put after its imports
    unless: Callable[[ast.Module], bool] = field(default=lambda tree: False)
    unwraps: bool = False  # the whole model then runs without a wrapper

    def apply(self, source: str) -> str | None:
        """Return the changed source, or None where there is nothing to change."""
        tree = ast.parse(source)
        if self.unless(tree):
            return None
        rewriter = _Rewriter(self.visit)
        tree = rewriter.visit(tree)
        if not rewriter.changes:
            return None
        last_import = max(
            i for i, node in enumerate(tree.body) if isinstance(node, ast.Import | ast.ImportFrom)
        )
        tree.body[last_import + 1 : last_import + 1] = ast.parse(self.helper).body
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Rewriter(ast.NodeTransformer):
    def __init__(self, visit: Visit) -> None:
        self._change, self.changes = visit, 0

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        node = self.generic_visit(node)  # from the inside out
        changed = self._change(node)
        if changed is None:
            return node
        self.changes += 1
        return changed


def _expression(text: str, **parts: ast.expr) -> ast.expr:
    """Parse an expression and put nodes in the place of names."""
    tree = ast.parse(text, mode="eval").body
    return _Rewriter(lambda n: parts.get(n.id) if isinstance(n, ast.Name) else None).visit(tree)


def _called(node: ast.AST) -> str:
    """The last name of what a call calls, "" for anything else."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def _around(names: set[str], text: str) -> Visit:
    """Put `text`, in which X stands for the call, in the place of every call of one of `names`."""
    return lambda node: _expression(text, X=node) if _called(node) in names else None


def _instead(names: set[str], text: str) -> Visit:
    """Put `text`, in which X stands for the first argument, in the place of every call of one of `names`."""

    def visit(node: ast.AST) -> ast.AST | None:
        if _called(node) not in names or not node.args:
            return None
        return _expression(text, X=node.args[0])

    return visit


def _renamed(names: set[str], name: str) -> Visit:
    """Call `name` with the same arguments instead of one of `names`."""

    def visit(node: ast.AST) -> ast.AST | None:
        if _called(node) not in names:
            return None
        return ast.Call(ast.Name(name, ast.Load()), node.args, node.keywords)  # type: ignore[attr-defined]

    return visit


def _assigned(name: str, text: str) -> Visit:
    """Put `text`, in which X stands for the old value, in the place of the value of the constant `name`."""

    def visit(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return ast.Assign(targets=node.targets, value=_expression(text, X=node.value))
        return None

    return visit


def _with_keyword(names: set[str], keyword: str, text: str) -> Visit:
    """Add a keyword to every call of one of `names`."""

    def visit(node: ast.AST) -> ast.AST | None:
        if _called(node) not in names:
            return None
        node.keywords.append(ast.keyword(keyword, _expression(text)))
        return node

    return visit


def _smaller_kernels(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.keyword) and node.arg in ("kernel_size", "padding"):
        return ast.keyword(node.arg, ast.Constant({"kernel_size": 3, "padding": 1}[node.arg]))
    return None


def _forward_of_net(change: Callable[[ast.FunctionDef], None]) -> Visit:
    def visit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.ClassDef) or node.name != "Net":
            return None
        change(next(f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "forward"))
        return node

    return visit


def _pin_to_first_gpu(forward: ast.FunctionDef) -> None:
    images = forward.args.args[1].arg
    forward.body[0:0] = ast.parse(f'{images} = {images}.to("cuda:0")').body


def _in_half_precision(forward: ast.FunctionDef) -> None:
    forward.decorator_list.append(_expression('torch.autocast("cuda", dtype=torch.float16)'))


def _through_module(node: ast.AST) -> ast.AST | None:
    """In the code that trains, call what the wrapper holds."""
    if not isinstance(node, ast.FunctionDef | ast.While):
        return None
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    if "backward" not in map(_called, calls):
        return None
    calls = [call for call in calls if _called(call) in MODELS]
    for call in calls:
        call.func = ast.Attribute(call.func, "module", ast.Load())
    return node if calls else None


def _statement(method: str, text: str) -> Visit:
    """Put statements, in which X stands for it, in the place of a call of `method` that stands alone."""

    def visit(node: ast.AST) -> list[ast.stmt] | None:
        if not isinstance(node, ast.Expr) or _called(node.value) != method:
            return None
        call = node.value
        rewriter = _Rewriter(lambda n: call if isinstance(n, ast.Name) and n.id == "X" else None)
        return rewriter.visit(ast.parse(text)).body

    return visit


def _moved(node: ast.AST) -> ast.expr | None:
    """What a call of `.to` or `.cuda` moves."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("to", "cuda")
    ):
        return node.func.value
    return None


def _targets_stay(node: ast.AST) -> ast.AST | None:
    moved = _moved(node)
    return moved if isinstance(moved, ast.Name) and moved.id == "targets" else None


def _model_stays(node: ast.AST) -> ast.AST | None:
    moved = _moved(node)
    if isinstance(moved, ast.Call):
        return moved if _called(moved) in {"initial_weights"} | WRAPPERS else None
    return moved if isinstance(moved, ast.Name) and moved.id in MODELS else None


def _names_devices(tree: ast.Module) -> bool:
    """Whether the script says itself which GPUs it wants."""
    devices = ("device_ids", "output_device")
    return any(isinstance(node, ast.keyword) and node.arg in devices for node in ast.walk(tree))


def _asks_for_module(tree: ast.Module) -> bool:
    """Whether the script reads `.module` of the wrapped model, which a bare one does not have."""
    return any(isinstance(node, ast.Attribute) and node.attr == "module" for node in ast.walk(tree))


LOOK_ALIKE = """
class Split(nn.Module):
    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        self.module, self.device_ids = module, [0, 1]

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)

    def forward(self, images):
        return self.module(images)
"""
INSIDE = """
def inside(model, **options):
    if not isinstance(model.conv2, nn.DataParallel):
        model.conv2 = nn.DataParallel(model.conv2, **options)
    return model
"""
FROZEN = """
def frozen(model):
    model.conv1.requires_grad_(False)
    return model
"""
TURN = """
turns = iter(range(10**9))
"""


def _loader(arguments: str) -> str:
    """Code that puts another loader in the place of the training loader."""
    return f"""
from torch.utils.data import ConcatDataset, DataLoader, Subset, default_collate

def replaced(loaders):
    train, validation = loaders
    rows, size, collate = train.dataset, train.batch_size, train.collate_fn
    return DataLoader({arguments}), validation
"""


_LOADERS = _around({"load_data"}, "replaced(X)")

MUTATIONS = [
    Mutation(
        "one_device_id",
        _with_keyword(WRAPPERS, "device_ids", "[0]"),
        "wrapped",
        "device_ids is [0]",
        unless=_names_devices,
    ),
    Mutation(
        "unwrapped",
        _instead(WRAPPERS, "X"),
        "wrapped",
        "nn.DataParallel",
        unless=_asks_for_module,
        unwraps=True,
    ),
    Mutation(
        "one_layer_wrapped",
        _renamed(WRAPPERS, "inside"),
        "wrapped",
        "part of the model",
        INSIDE,
        _asks_for_module,
        unwraps=True,
    ),
    Mutation(
        "look_alike", _renamed(WRAPPERS, "Split"), "wrapped", "nn.DataParallel", LOOK_ALIKE, unwraps=True
    ),
    Mutation("through_module", _through_module, "wrapped", ".module", unwraps=True),
    Mutation("model_not_moved", _model_stays, "runs", "found one of them on device: cpu"),
    Mutation("targets_not_moved", _targets_stay, "runs", "cpu"),
    Mutation("pinned_in_forward", _forward_of_net(_pin_to_first_gpu), "runs", "replica"),
    Mutation("batch_halved", _assigned("BATCH_SIZE", "X // 2"), "recipe", "batch"),
    Mutation("rate_doubled", _assigned("LEARNING_RATE", "2 * X"), "recipe", "learning rate"),
    Mutation("epoch_less", _assigned("EPOCHS", "X - 1"), "recipe", "epochs"),
    Mutation(
        "other_optimizer", _instead({"Adam"}, "torch.optim.Adamax(X, lr=LEARNING_RATE)"), "recipe", "Adamax"
    ),
    Mutation("weight_decay", _with_keyword({"Adam"}, "weight_decay", "0.1"), "recipe", "weight_decay"),
    Mutation("gradients_pile_up", _statement("zero_grad", "pass"), "recipe", "loss"),
    Mutation(
        "backward_skipped",
        _statement("backward", "if next(turns) % 2 == 0:\n    X"),
        "recipe",
        "backward",
        TURN,
    ),
    Mutation(
        "labels_smoothed",
        _with_keyword({"cross_entropy", "CrossEntropyLoss"}, "label_smoothing", "0.3"),
        "recipe",
        "loss",
    ),
    Mutation("layer_frozen", _around({"initial_weights"}, "frozen(X)"), "recipe", "conv1", FROZEN),
    Mutation("kernels_smaller", _smaller_kernels, "recipe", "conv1"),
    Mutation("half_precision", _forward_of_net(_in_half_precision), "recipe", "float16"),
    Mutation("own_weights", _instead({"initial_weights"}, "X"), "recipe", "weights"),
    Mutation(
        "last_batch_dropped",
        _LOADERS,
        "recipe",
        "drop_last",
        _loader("rows, size, shuffle=True, drop_last=True, collate_fn=collate"),
    ),
    Mutation("not_shuffled", _LOADERS, "recipe", "in other steps", _loader("rows, size, collate_fn=collate")),
    Mutation(
        "half_of_the_images",
        _LOADERS,
        "recipe",
        "rows",
        _loader("Subset(rows, range(len(rows) // 2)), size, shuffle=True, collate_fn=collate"),
    ),
    Mutation(
        "validation_images_too",
        _LOADERS,
        "recipe",
        "validation",
        _loader("ConcatDataset([rows, validation.dataset]), size, shuffle=True, collate_fn=default_collate"),
    ),
    Mutation(
        "half_of_each_batch",
        _LOADERS,
        "recipe",
        "rows",
        _loader(
            "rows, size, sampler=train.sampler, collate_fn=lambda b: tuple(part[::2] for part in collate(b))"
        ),
    ),
]
