"""A folder for the Hugging Face Hub: what its card says, and the way to a server that imitates the Hub, and back."""

import base64
import contextlib
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
import yaml
from conftest import cookbook
from own_models import ScaledLogits

from transformer_lib import Translator, WordTokenizer, load_model
from transformer_lib.checkpoint import SavedModel
from transformer_lib.inference.bleu import chrf, score
from transformer_lib.interop import hub
from transformer_lib.interop.hub import shareable, write_hub_folder

REPO_ID = "you/german-english"
SENTENCE = "Ein Hund schläft."


@pytest.fixture
def saved(trained):
    notes = {"corpus": "sample", "preset": "small", "recipe": {"epochs": 60}, "search": {"beam_size": 1}}
    return SavedModel(trained.model, {"src": trained.src_tokenizer, "tgt": trained.tgt_tokenizer}, notes)


def front_matter_and_text(folder):
    _, front_matter, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(front_matter), text


def test_the_folder_holds_a_model_that_loads_and_a_card(saved, tmp_path):
    write_hub_folder(saved, tmp_path / "hub", REPO_ID, "mit", "Eight pairs.")
    assert sorted(path.name for path in (tmp_path / "hub").iterdir()) == ["README.md", "model.safetensors"]
    translator = Translator.from_saved(saved)
    assert Translator.load(tmp_path / "hub")(SENTENCE) == translator(SENTENCE)
    front_matter, text = front_matter_and_text(tmp_path / "hub")
    assert front_matter == {
        "language": ["de", "en"],
        "license": "mit",
        "library_name": "transformer_lib",
        "pipeline_tag": "translation",
        "tags": ["translation", "transformer", "pytorch"],
    }
    assert text.startswith("\n# german-english\n\nTranslates from de to en.")
    assert "Eight pairs." in text and '"epochs": 60' in text


def test_the_card_has_the_scores_that_were_measured_with_their_signatures(saved, pairs, tmp_path):
    translator = Translator.from_saved(saved)
    translations = translator.translate([pair.src for pair in pairs])
    references = [pair.tgt for pair in pairs]
    measured = score(translations, references, translator.tgt_tokenizer)
    letters = chrf([one.text for one in translations], references)
    write_hub_folder(
        saved, tmp_path / "hub", REPO_ID, "mit", "Pairs.", scores={"train": measured, "train, letters": [letters]}
    )
    _, text = front_matter_and_text(tmp_path / "hub")
    for one in measured:
        assert f"- train: {one.value:.2f} ({one.signature})\n" in text
    assert f"- train, letters: {letters}\n" in text
    write_hub_folder(saved, tmp_path / "one", REPO_ID, "mit", "Pairs.", scores={"letters": letters})
    assert f"- letters: {letters}\n" in front_matter_and_text(tmp_path / "one")[1]


def test_what_is_not_known_is_not_in_the_card(saved, tmp_path):
    write_hub_folder(SavedModel(saved.model, saved.tokenizers, {}), tmp_path / "hub", REPO_ID, "mit", "Eight pairs.")
    _, text = front_matter_and_text(tmp_path / "hub")
    for word in ("score", "sample", "preset", "epochs", "{}", "transformer-lib train"):
        assert word not in text


def test_a_card_without_tokenisers_names_no_languages(saved, tmp_path):
    write_hub_folder(SavedModel(saved.model, {}, {}), tmp_path / "hub", REPO_ID, "mit", "Eight pairs.")
    front_matter, text = front_matter_and_text(tmp_path / "hub")
    assert "Translates. A Transformer with" in text and "language" not in front_matter


def test_a_value_with_yaml_in_it_stays_a_value(saved, tmp_path):
    license = 'other: "#'
    write_hub_folder(saved, tmp_path / "hub", REPO_ID, license, "Pairs.")
    front_matter, _ = front_matter_and_text(tmp_path / "hub")
    assert front_matter["license"] == license


def test_the_card_hands_over_what_is_not_of_this_library(saved, tmp_path):
    own = ScaledLogits(saved.model.config)
    write_hub_folder(SavedModel(own, saved.tokenizers, {}), tmp_path / "hub", REPO_ID, "mit", "Pairs.")
    _, text = front_matter_and_text(tmp_path / "hub")
    assert f'Translator.load(hf_hub_download("{REPO_ID}", "model.safetensors"), ScaledLogits)' in text
    loaded = load_model(tmp_path / "hub", ScaledLogits).model
    torch.testing.assert_close(loaded.output.weight, own.output.weight, rtol=1e-3, atol=1e-6)  # half precision


def test_a_path_of_this_machine_is_in_neither_file(saved, tmp_path):
    saved.notes["corpus"] = str(tmp_path / "my_pairs")
    write_hub_folder(saved, tmp_path / "hub", REPO_ID, "mit", "Pairs.")
    assert load_model(tmp_path / "hub").notes["corpus"] == "…/my_pairs"
    for path in (tmp_path / "hub").iterdir():
        assert str(tmp_path).encode() not in path.read_bytes()
    assert shareable({"corpus": "multi30k", "preset": "small"}) == {"corpus": "multi30k", "preset": "small"}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"repo_id": "german-english"}, "repo_id is 'german-english', expected your name on the Hub and the model's"),
        ({"repo_id": 'you/"); evil("'}, "repo_id is"),
        ({"license": " "}, "license is empty"),
        ({"data": ""}, "data is empty"),
    ],
)
def test_what_the_card_cannot_do_without_is_asked_for(saved, tmp_path, changes, message):
    arguments = {"repo_id": REPO_ID, "license": "mit", "data": "Eight pairs."} | changes
    with pytest.raises(ValueError, match=re.escape(message)):
        write_hub_folder(saved, tmp_path / "hub", **arguments)
    assert not (tmp_path / "hub").exists()


@pytest.mark.parametrize("given", [43.6, [43.6]])
def test_a_bare_number_is_no_score(saved, tmp_path, given):
    with pytest.raises(TypeError, match=re.escape("scores holds 43.6, expected what bleu.score returned")):
        write_hub_folder(saved, tmp_path / "hub", REPO_ID, "mit", "Pairs.", scores={"test": given})


def test_a_folder_that_holds_something_is_left_alone(saved, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(FileExistsError, match="exists, expected a new or empty folder: choose another"):
        write_hub_folder(saved, tmp_path, REPO_ID, "mit", "Pairs.")
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_nothing_is_left_of_a_folder_that_cannot_be_written(saved, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(hub, "save_model", fail)
    with pytest.raises(OSError, match="no space left"):
        write_hub_folder(saved, tmp_path / "hub", REPO_ID, "mit", "Pairs.")
    assert not list(tmp_path.iterdir())


class Hub(BaseHTTPRequestHandler):
    """What of the Hub's protocol an upload of small files and a download need; ``files`` is what it holds."""

    files: dict[str, bytes]

    def do_POST(self):
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/repos/create":
            owner, name = REPO_ID.split("/")
            assert json.loads(sent)["name"] == name
            self.answer({"url": f"http://{self.headers['Host']}/{REPO_ID}", "name": f"{owner}/{name}"})
        elif self.path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif self.path == f"/api/models/{REPO_ID}/preupload/main":
            files = [{"uploadMode": "regular", "shouldIgnore": False, **one} for one in json.loads(sent)["files"]]
            self.answer({"files": files})
        elif self.path == f"/api/models/{REPO_ID}/commit/main":
            for line in map(json.loads, sent.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.answer({"commitOid": "1" * 40, "commitUrl": f"http://{self.headers['Host']}/{REPO_ID}/commit/1"})
        else:
            self.send_error(404)

    def do_HEAD(self):
        content = self.files.get(self.path.removeprefix(f"/{REPO_ID}/resolve/main/"))
        if content is None:
            self.send_error(404)
            return b""
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", "1" * 40)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return content

    def do_GET(self):
        self.wfile.write(self.do_HEAD())

    def answer(self, values):
        content = json.dumps(values).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def running_hub():
    files = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("ThisHub", (Hub,), {"files": files}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", files
    finally:
        server.shutdown()
        server.server_close()


def test_the_lines_of_the_cookbook_upload_and_those_of_the_card_load(saved, tmp_path):
    if importlib.util.find_spec("huggingface_hub") is None:
        pytest.skip("huggingface_hub is not installed: pip install '.[export]'")
    folder = tmp_path / "hub"
    write_hub_folder(saved, folder, REPO_ID, "mit", "Eight pairs.")
    lines = cookbook("To the Hugging Face Hub")[-1].replace("your-name/de-en", REPO_ID).splitlines()
    upload, download = "\n".join(lines[:-1]).replace('"for-the-hub"', repr(str(folder))), lines[-1]
    card = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.S)[1]
    of_reader = "import sys\nsys.stdout.reconfigure(encoding='utf-8')\n" + card.replace("…", SENTENCE)
    with running_hub() as (address, files):
        environment = {
            **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            "HF_ENDPOINT": address,
            "HF_HOME": str(tmp_path / "home"),
            "HF_TOKEN": "hf_made_up",
            "PYTHONPATH": os.pathsep.join([str(Path(hub.__file__).parents[2]), *sys.path]),
        }

        def run(code):
            command = [sys.executable, "-c", code]
            return subprocess.run(
                command, env=environment, cwd=tmp_path, capture_output=True, check=True, text=True, encoding="utf-8"
            ).stdout

        run(f"import huggingface_hub\n{upload}\n")
        assert files == {path.name: path.read_bytes() for path in folder.iterdir()}
        expected = Translator.from_saved(saved)(SENTENCE)
        assert run(of_reader) == f"{expected}\n"
        of_cookbook = f"import huggingface_hub\nfrom transformer_lib import Translator\n{download}\n"
        assert run(f"{of_cookbook}print(translator({SENTENCE!r}))") == f"{expected}\n"


def test_the_hub_finds_nothing_wrong_with_the_card(saved, tmp_path):
    huggingface_hub = pytest.importorskip(
        "huggingface_hub", reason="huggingface_hub is not installed: pip install '.[export]'", exc_type=ImportError
    )
    write_hub_folder(saved, tmp_path / "hub", REPO_ID, "mit", "Eight pairs.")
    card = huggingface_hub.ModelCard.load(tmp_path / "hub" / "README.md")
    assert card.data.to_dict()["language"] == ["de", "en"]
    assert card.data.library_name == "transformer_lib"
    assert card.text.lstrip().startswith("# german-english")


def test_a_language_model_gets_a_card_of_its_own(tmp_path):
    from transformer_lib import LanguageModelConfig, TextGenerator, TransformerLanguageModel
    from transformer_lib.language_model.stream import StreamTokenizer

    tokenizer = StreamTokenizer("en")
    tokenizer.build_vocab([["a", "b"]])
    config = LanguageModelConfig(len(tokenizer.vocab), d_model=8, num_heads=2, d_ff=16, num_layers=1)
    saved = SavedModel(TransformerLanguageModel(config), {"text": tokenizer}, {})
    write_hub_folder(saved, tmp_path / "hub", REPO_ID, "mit", "Two letters.")
    front_matter, text = front_matter_and_text(tmp_path / "hub")
    assert front_matter["pipeline_tag"] == "text-generation" and "Continues text in en." in text
    assert "TextGenerator.load(hf_hub_download(" in text
    assert isinstance(TextGenerator.load(tmp_path / "hub"), TextGenerator)


def cut_at_hyphens(sentence):
    return sentence.split("-")


def test_the_card_names_the_function_of_a_tokeniser(saved, tmp_path):
    src = WordTokenizer("de", tokenize=cut_at_hyphens)
    src.vocab = saved.tokenizers["src"].vocab
    own = SavedModel(saved.model, {**saved.tokenizers, "src": src}, {})
    write_hub_folder(own, tmp_path / "hub", REPO_ID, "mit", "Pairs.")
    assert '"model.safetensors"), cut_at_hyphens)' in front_matter_and_text(tmp_path / "hub")[1]
