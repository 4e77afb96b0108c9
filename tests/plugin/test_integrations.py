"""torch_tenon.integrations against the real libraries, on tiny models made from a config."""

import copy
import logging

import pytest
import torch
from torch import nn

pytestmark = [
    pytest.mark.usefixtures("tenon"),
    pytest.mark.filterwarnings("ignore"),
]
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")


def _classifier(dropout=0.0):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


class _Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        tokens = (torch.arange(8) * (index + 3)) % 40
        return {"input_ids": tokens, "attention_mask": torch.ones(8, dtype=torch.long), "labels": torch.tensor(index % 2)}


def _trainer(model, folder, checkpointing=False, **more):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=3, per_device_train_batch_size=4, report_to=[], use_cpu=True,
        save_strategy="no", logging_strategy="no", disable_tqdm=True, seed=1, dataloader_num_workers=0,
        gradient_checkpointing=checkpointing, gradient_checkpointing_kwargs={"use_reentrant": False} if checkpointing else None,
    )  # fmt: skip
    return transformers.Trainer(model, arguments, train_dataset=_Sentences(), eval_dataset=_Sentences(), **more)


def _same_parameters(found: nn.Module, wanted: nn.Module):
    pairs = dict(found.named_parameters()), dict(wanted.named_parameters())
    assert pairs[0].keys() == pairs[1].keys()
    for name, parameter in pairs[1].items():
        torch.testing.assert_close(pairs[0][name], parameter, rtol=1e-3, atol=1e-4)


def test_trainer_with_a_compiled_model(tmp_path, graphs_ran_natively):
    from torch_tenon.integrations.huggingface import compile_for_trainer

    eager = _classifier()
    wanted = _trainer(eager, tmp_path / "eager")
    wanted.train()
    model = _classifier()
    trainer = _trainer(compile_for_trainer(model), tmp_path / "tenon")
    trainer.train()
    assert type(model) is transformers.BertForSequenceClassification
    _same_parameters(model, eager)
    assert {r.kind for r in graphs_ran_natively} >= {"forward", "backward"}
    found = trainer.evaluate()["eval_loss"]
    assert found == pytest.approx(wanted.evaluate()["eval_loss"], rel=1e-3)
    trainer.save_model(str(tmp_path / "saved"))
    _same_parameters(transformers.BertForSequenceClassification.from_pretrained(tmp_path / "saved"), eager)
    with pytest.raises(TypeError, match="compiled already"):
        compile_for_trainer(torch.compile(nn.Linear(2, 2), backend="tenon"))


def test_checkpoints_and_dropout(tmp_path, graphs_ran_natively):
    """The states of the random generator that checkpoints keep pass through tenon's node; what dropout draws is eager's."""
    from torch_tenon.integrations.huggingface import compile_for_trainer

    eager, model = _classifier(dropout=0.3), _classifier(dropout=0.3)
    _trainer(eager, tmp_path / "eager", checkpointing=True).train()
    trainer = _trainer(compile_for_trainer(model), tmp_path / "tenon", checkpointing=True)
    trainer.train()
    _same_parameters(model, eager)
    forwards = [r for r in graphs_ran_natively if r.kind == "forward"]
    assert "tenon.rng_state" in {step.get("op") for r in forwards for step in r.info["steps"]}
    assert {(r.autograd.node, r.autograd.reason) for r in forwards} == {("own", "")}


def test_trainer_callback(tmp_path, caplog, graphs_ran_natively):
    from torch_tenon.integrations.huggingface import TenonCallback

    eager, model, callback = _classifier(), _classifier(), TenonCallback(options={"fallback": "warn"})
    _trainer(eager, tmp_path / "eager").train()
    with caplog.at_level(logging.INFO, logger="tenon"):
        _trainer(model, tmp_path / "tenon", callbacks=[callback]).train()
    _same_parameters(model, eager)
    assert graphs_ran_natively and f"{len(graphs_ran_natively)} graphs" in callback.summary
    assert any(callback.summary in record.getMessage() for record in caplog.records)


def test_the_closed_lists_are_still_closed(tmp_path):
    """If one opens, docs/huggingface.md and torch_tenon.integrations have something to drop."""
    with pytest.raises(ValueError, match="TENON"):
        accelerate.Accelerator(dynamo_backend="tenon", cpu=True)


def test_accelerate(graphs_ran_natively):
    from torch_tenon.integrations.huggingface import prepare

    def train(prepare_with):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        accelerator = accelerate.Accelerator(cpu=True)
        prepared, optimizer = prepare_with(accelerator, model, optimizer)
        for step in range(3):
            x = torch.sin(torch.arange(48.0).view(8, 6) + step)
            with accelerator.accumulate(prepared):
                loss = prepared(x).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        assert accelerator.unwrap_model(prepared, keep_torch_compile=False) is model
        return model

    eager = train(lambda accelerator, *objects: accelerator.prepare(*objects))
    assert not graphs_ran_natively
    _same_parameters(train(prepare), eager)
    assert [r.kind for r in graphs_ran_natively] == ["forward", "backward"]


# --- Lightning ----------------------------------------------------------------------------------


@pytest.fixture
def lightning_run(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 1))

        def forward(self, x):
            return self.body(x)

        def training_step(self, batch, index):
            return (self(batch[0]) - 1).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def run(callbacks=(), wrap=lambda net: net):
        net = Net()
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.sin(torch.arange(96.0)).view(16, 6)), 4)
        trainer = lightning.Trainer(
            max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, callbacks=list(callbacks), default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(wrap(net), data)
        return net

    return run


@pytest.mark.parametrize("steps", [False, True])
def test_lightning_callback(steps, lightning_run, graphs_ran_natively):
    from torch_tenon.integrations.lightning import TenonCallback

    eager, callback = lightning_run(), TenonCallback(steps=steps)
    assert not graphs_ran_natively
    net = lightning_run([callback])
    _same_parameters(net, eager)
    assert {r.kind for r in graphs_ran_natively} == {"forward", "backward"}
    assert "graphs" in callback.summary and "forward" not in vars(net) and "training_step" not in vars(net)
    copy.deepcopy(net)


def test_lightning_with_torch_compile(lightning_run, graphs_ran_natively):
    from torch_tenon.integrations.lightning import TenonCallback

    eager = lightning_run()
    _same_parameters(lightning_run(wrap=lambda net: torch.compile(net, backend="tenon")), eager)
    assert {r.kind for r in graphs_ran_natively} == {"forward", "backward"}
    with pytest.raises(ValueError, match="compiled already"):
        lightning_run([TenonCallback()], wrap=lambda net: torch.compile(net, backend="tenon"))
