"""What the probe sees of a training script, whatever style it is written in."""

from __future__ import annotations

import pytest

WRAPPED = "model = nn.DataParallel(initial_weights(Net()).cuda())"
PLAIN = "model = initial_weights(Net()).cuda()"


def forwards(evidence):
    return [forward for step in evidence.optimized_steps for forward in step.forwards]


def test_a_plain_model_runs_on_one_device(observe):
    evidence = observe(PLAIN)
    assert {f.path for f in forwards(evidence)} == {"plain"}
    assert [f.rows_per_device for f in forwards(evidence)] == [{"cuda:0": 32}, {"cuda:0": 32}, {"cuda:0": 16}]
    assert evidence.wrappers == []


def test_a_wrapped_model_shares_its_rows(observe):
    evidence = observe(WRAPPED)
    assert [f.rows_per_device for f in forwards(evidence)] == [
        {"cuda:0": 16, "cuda:1": 16},
        {"cuda:0": 16, "cuda:1": 16},
        {"cuda:0": 8, "cuda:1": 8},
    ]
    assert {(f.path, f.wrapper, f.model) for f in forwards(evidence)} == {("wrapper", 0, "Net")}
    (wrapper,) = evidence.wrappers
    assert (wrapper.kind, wrapper.wraps, wrapper.device_ids, wrapper.built_after_steps) == (
        "data_parallel",
        "Net",
        [0, 1],
        0,
    )
    assert wrapper.site.code == WRAPPED
    assert wrapper.class_name == "torch.nn.parallel.data_parallel.DataParallel"


def test_devices_and_types_of_everything_in_a_step(observe):
    forward = forwards(observe(WRAPPED))[0]
    assert forward.parameter_devices == ["cuda:0"]
    assert (forward.input_device, forward.output_device) == ("cuda:0", "cuda:0")
    assert (forward.target_device, forward.loss_device) == ("cuda:0", "cuda:0")
    assert (forward.input_dtype, forward.parameter_dtypes, forward.output_dtype) == (
        "float32",
        ["float32"],
        "float32",
    )
    assert forward.autocast is None
    assert forward.backwards == 1


def test_a_model_called_inside_its_wrapper_is_a_bypass(observe):
    evidence = observe(f"wrapper = {WRAPPED.removeprefix('model = ')}\nmodel = wrapper.module")
    assert {f.path for f in forwards(evidence)} == {"bypass"}
    assert {tuple(f.rows_per_device) for f in forwards(evidence)} == {("cuda:0",)}


def test_a_wrapped_part_is_partial_and_keeps_its_architecture(observe):
    plain = observe(PLAIN)
    evidence = observe("model = initial_weights(Net()).cuda()\nmodel.hidden = nn.DataParallel(model.hidden)")
    assert {f.path for f in forwards(evidence)} == {"partial"}
    assert evidence.architecture.state == plain.architecture.state


def test_a_module_that_only_holds_the_wrapper_counts_as_the_wrapper(observe):
    evidence = observe(
        """
        class Trainer(nn.Module):
            def __init__(self):
                super().__init__()
                self.network = nn.DataParallel(initial_weights(Net()))
            def forward(self, images):
                return self.network(images)
        model = Trainer().cuda()
        """
    )
    assert {f.path for f in forwards(evidence)} == {"wrapper"}
    assert sorted(evidence.architecture.state) == ["hidden.bias", "hidden.weight", "last.bias", "last.weight"]


def test_a_subclass_tells_what_it_replaces(observe):
    evidence = observe(
        """
        class Mine(nn.DataParallel):
            def scatter(self, *args, **kwargs):
                return super().scatter(*args, **kwargs)
            def note(self):
                pass
        model = Mine(Net().cuda())
        """
    )
    (wrapper,) = evidence.wrappers
    assert (wrapper.kind, wrapper.overrides) == ("subclass", ["scatter"])


def test_a_method_replaced_on_the_wrapper_itself_is_seen(observe):
    evidence = observe(f"{WRAPPED}\nmodel.gather = model.gather")
    assert evidence.wrappers[0].overrides == ["gather"]


def test_a_class_that_lies_about_its_class_is_no_wrapper(observe):
    evidence = observe(
        """
        class Forged(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module
                self.device_ids = [0, 1]
            def forward(self, images):
                return self.module(images)
            __class__ = property(lambda self: nn.DataParallel)
        model = Forged(Net().cuda())
        assert isinstance(model, nn.DataParallel)
        """
    )
    assert evidence.wrappers == []
    assert {f.path for f in forwards(evidence)} == {"plain"}


def test_a_wrapper_built_late_or_discarded_is_told_apart(observe):
    evidence = observe(f"{PLAIN}\nnn.DataParallel(model)", epochs=1)
    assert [w.built_after_steps for w in evidence.wrappers] == [0]
    late = observe(PLAIN, loop=_loop() + "\nmodel = nn.DataParallel(model)\n")
    assert [w.built_after_steps for w in late.wrappers] == [3]
    assert {f.path for f in forwards(late)} == {"plain"}


def _loop() -> str:
    from .conftest import LOOP

    return LOOP


def test_wrapping_twice_is_recorded(observe):
    evidence = observe("model = nn.DataParallel(nn.DataParallel(Net().cuda(), device_ids=[0]))")
    assert [w.wraps_wrapper for w in evidence.wrappers] == [False, True]


def test_distributed_data_parallel_is_its_own_kind(observe):
    evidence = observe(
        """
        import os, torch.distributed as dist
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meet", rank=0, world_size=1)
        model = nn.parallel.DistributedDataParallel(Net())
        """,
        loop="for images, targets in train: break\n",
    )
    assert [w.kind for w in evidence.wrappers] == ["distributed"]


def test_the_recipe_is_recorded(observe):
    evidence = observe(WRAPPED)
    (optimizer,) = evidence.optimizers
    assert optimizer.class_name == "torch.optim.sgd.SGD"
    assert optimizer.hyperparameters[0]["lr"] == 0.1
    assert optimizer.parameters == ["hidden.bias", "hidden.weight", "last.bias", "last.weight"]
    assert optimizer.site.code.startswith("optimizer = torch.optim.SGD")
    (epoch,) = evidence.epochs
    assert (epoch.rows, epoch.batches, epoch.largest_batch, epoch.loader_batch_size, epoch.shuffled) == (
        80,
        3,
        32,
        32,
        True,
    )
    assert evidence.architecture.class_name == "Net"
    assert evidence.architecture.state["hidden.weight"].shape == [8, 784]
    assert all(facts.trainable for facts in evidence.architecture.state.values())
    assert [step.loss_function for step in evidence.optimized_steps] == ["NllLossBackward0"] * 3
    assert evidence.optimized_steps[0].parameters_with_gradient == 4
    assert evidence.optimized_steps[0].learning_rates == [0.1]


def test_samples_and_losses_agree_between_wrapped_and_plain(observe):
    plain, wrapped = observe(PLAIN, epochs=2), observe(WRAPPED, epochs=2)
    assert [s.samples for s in plain.optimized_steps] == [s.samples for s in wrapped.optimized_steps]
    assert [s.loss for s in plain.optimized_steps] == pytest.approx(
        [s.loss for s in wrapped.optimized_steps], rel=1e-4
    )
    assert plain.optimized_steps[0].samples != plain.optimized_steps[3].samples  # shuffled anew


def test_random_numbers_of_the_scripts_own_do_not_change_the_batches(observe):
    plain = observe(PLAIN)
    drawing = observe(f"torch.manual_seed(5); torch.rand(7)\n{PLAIN}")
    assert [s.samples for s in plain.optimized_steps] == [s.samples for s in drawing.optimized_steps]


def test_half_a_batch_and_a_skipped_backward_are_seen(observe):
    half = observe(
        PLAIN,
        loop=_loop().replace("images.cuda(), targets.cuda()", "images[:16].cuda(), targets[:16].cuda()"),
    )
    assert [s.rows for s in half.optimized_steps] == [16, 16, 16]
    skipping = observe(
        PLAIN, loop=_loop().replace("loss.backward()", "epoch % 2 or len(images) < 32 or loss.backward()")
    )
    assert [s.rows for s in skipping.optimized_steps] == [32, 32, 0]


def test_frozen_layers_and_half_precision_are_seen(observe):
    frozen = observe(f"{PLAIN}\nmodel.hidden.requires_grad_(False)")
    assert not frozen.architecture.state["hidden.weight"].trainable
    assert frozen.optimized_steps[0].parameters_with_gradient == 2
    autocast = observe(
        PLAIN,
        loop=_loop().replace(
            "    loss = F.cross_entropy(model(images), targets)",
            "    with torch.autocast('cuda'):\n            loss = F.cross_entropy(model(images), targets)",
        ),
    )
    assert {f.autocast for f in forwards(autocast)} == {"float16"}
    halved = observe(
        f"{PLAIN}\nmodel.bfloat16()", loop=_loop().replace("images.cuda()", "images.cuda().bfloat16()")
    )
    assert {tuple(f.parameter_dtypes) for f in forwards(halved)} == {("bfloat16",)}


def test_a_loop_in_another_style_has_the_same_epochs(observe):
    loop = """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    batches = iter(train)
    for _ in range(len(train)):
        images, targets = next(batches)
        optimizer.zero_grad()
        criterion(model(images.cuda()), targets.cuda()).backward()
        optimizer.step()
    """
    evidence = observe(PLAIN, loop=loop, run="speed")
    (epoch,) = evidence.epochs
    assert (epoch.rows, epoch.batches) == (80, 3)
    assert epoch.seconds > 0


def test_validation_is_no_part_of_an_epoch(observe):
    evidence = observe(PLAIN, epochs=2, run="speed")
    with_more = observe(
        PLAIN, loop=_loop().replace("in validation", "in list(validation) * 20"), epochs=2, run="speed"
    )
    assert [e.seconds for e in evidence.epochs] == pytest.approx([e.seconds for e in with_more.epochs])
    assert len(evidence.epochs) == 2


def test_a_peek_at_a_batch_is_no_epoch(observe):
    evidence = observe(f"images, targets = next(iter(train))\n{PLAIN}")
    assert len(evidence.epochs) == 1
    assert {s.epoch for s in evidence.optimized_steps} == {0}


def test_the_functional_form_is_told_from_a_wrapper(observe):
    loop = _loop().replace("model(images), targets", "nn.parallel.data_parallel(model, images), targets")
    evidence = observe(PLAIN, loop=loop)
    assert {f.path for f in forwards(evidence)} == {"functional"}
    assert forwards(evidence)[0].rows_per_device == {"cuda:0": 16, "cuda:1": 16}


def test_code_of_the_scripts_own_that_fails_under_observation_is_its_error(observe):
    evidence = observe(
        """
        class Touchy(Net):
            @property
            def training(self):
                raise ValueError("do not look")
            @training.setter
            def training(self, value):
                pass
        model = Touchy().cuda()
        """
    )
    assert (evidence.outcome, evidence.error.type) == ("error", "ValueError")


def test_a_replaced_function_that_observation_needs_ends_the_run(observe):
    evidence = observe(f"{PLAIN}\ntorch.Tensor.device = property(lambda self: None.gone)")
    assert evidence.outcome in ("killed", "error")


def test_a_loader_of_ones_own_over_the_training_rows_is_seen(observe):
    loop = _loop().replace("in train:", "in torch.utils.data.DataLoader(train.dataset, 40, drop_last=True):")
    (epoch,) = observe(PLAIN, loop=loop).epochs
    assert (epoch.rows, epoch.largest_batch, epoch.shuffled) == (80, 40, False)


def test_a_replaced_function_is_tampering(observe):
    evidence = observe(f"torch.cuda.synchronize = lambda device=None: None\n{PLAIN}")
    assert evidence.tampering == ["torch.cuda.synchronize"]
    assert observe(PLAIN).tampering == []


def test_the_warnings_of_torch_are_kept(observe):
    evidence = observe(
        """
        class Lossy(Net):
            def forward(self, images):
                return super().forward(images).mean()
        model = nn.DataParallel(Lossy().cuda())
        """,
        loop="for images, targets in train: model(images.cuda())\n",
    )
    assert any("will instead unsqueeze and return a vector" in text for text in evidence.warnings)


def test_the_speed_run_has_clocks_memory_and_a_timeline(observe):
    evidence = observe(WRAPPED, run="speed")
    assert evidence.epochs[0].seconds > 0
    assert [d.device for d in evidence.devices] == ["cuda:0", "cuda:1"]
    for device in evidence.devices:
        assert device.busy_seconds > 0 and 0 < device.peak_bytes < device.capacity_bytes
        assert device.memory and all(seconds >= 0 for seconds, _ in device.memory)
    assert {"cuda:0", "cuda:1"} <= {span.track for span in evidence.spans}


def test_the_speed_run_is_the_same_to_the_last_digit(observe):
    first, second = observe(WRAPPED, run="speed"), observe(WRAPPED, run="speed")
    assert first.epochs == second.epochs


def test_a_validation_within_an_epoch_pauses_it(observe):
    inner = """        optimizer.step()
        with torch.no_grad():
            for held, _ in validation:
                model(held.cuda())
"""
    plain = observe(PLAIN, run="speed")
    evidence = observe(PLAIN, loop=_loop().replace("        optimizer.step()\n", inner), run="speed")
    (epoch,) = evidence.epochs
    assert (epoch.rows, epoch.batches) == (80, 3)
    assert epoch.seconds == pytest.approx(plain.epochs[0].seconds, rel=0.2)


def test_work_done_while_validating_counts(observe):
    """A backward behind an iterator that was only opened for show is still part of the epoch."""
    hiding = _loop().replace("        loss.backward()", "        iter(validation)\n        loss.backward()")
    plain, hidden = observe(PLAIN, run="speed"), observe(PLAIN, loop=hiding, run="speed")
    assert hidden.epochs[0].seconds >= 0.9 * plain.epochs[0].seconds


def test_batches_fetched_in_advance_belong_to_their_epoch(observe):
    plain = observe(PLAIN, epochs=2, run="speed")
    loop = _loop().replace("in train:", "in list(train):")
    evidence = observe(PLAIN, loop=loop, epochs=2, run="speed")
    assert [epoch.batches for epoch in evidence.epochs] == [3, 3]
    assert [step.epoch for step in evidence.optimized_steps] == [0, 0, 0, 1, 1, 1]
    assert evidence.epochs[0].seconds == pytest.approx(plain.epochs[0].seconds, rel=0.1)


def test_an_assertion_about_values_does_not_end_a_run_without_them(observe):
    loop = _loop().replace(
        "        loss.backward()", "        assert loss.item() > 0\n        loss.backward()"
    )
    assert observe(PLAIN, loop=loop, run="speed").outcome == "completed"
    assert observe(PLAIN, loop=loop.replace("> 0", "< 0")).error.type == "AssertionError"


def test_half_precision_within_forward_is_seen(observe):
    for body in (
        "with torch.autocast('cuda', dtype=torch.float16):\n            return super().forward(images)",
        "return self.last(F.relu(self.hidden.half()(images.flatten(1).half())).float())",
    ):
        model = f"class Half(Net):\n    def forward(self, images):\n        {body}\nmodel = Half().cuda()"
        assert {f.autocast for f in forwards(observe(model))} == {"float16"}


def test_a_loss_from_forward_beside_the_outputs_counts_as_their_backward(observe):
    model = """
    class Both(Net):
        def forward(self, images, targets):
            outputs = super().forward(images)
            return outputs, F.cross_entropy(outputs, targets).unsqueeze(0)
    model = nn.DataParallel(Both().cuda())
    """
    loop = _loop().replace("F.cross_entropy(model(images), targets)", "model(images, targets)[1].mean()")
    loop = loop.replace("model(images.cuda())", "pass")
    assert [f.backwards for f in forwards(observe(model, loop=loop))] == [1, 1, 1]


def test_names_and_texts_cannot_steer_a_terminal(observe):
    evidence = observe(
        """
        model = nn.DataParallel(Net().cuda())
        model.module.add_module("\\x1b[31mred\\u202e", nn.Identity())
        raise type("\\x1b[2Jclear", (Exception,), {})("\\x1b]0;title\\x07 \\ud800")
        """
    )
    assert evidence.error.type == "clear"
    assert "\x1b" not in evidence.model_dump_json() and "\\u001b" not in evidence.model_dump_json()


def test_validation_that_does_not_switch_gradients_off_is_no_training(observe):
    loop = _loop().replace("    with torch.no_grad():\n", "    model.eval()\n    if True:\n")
    loop = loop.replace(
        "    for images, targets in train:", "    model.train()\n    for images, targets in train:"
    )
    evidence = observe(WRAPPED, loop=loop, epochs=2)
    assert [len(step.forwards) for step in evidence.steps] == [1] * 6


def test_training_in_evaluation_mode_is_training(observe):
    evidence = observe(f"{WRAPPED}\nmodel.eval()")
    assert [step.rows for step in evidence.optimized_steps] == [32, 32, 16]
