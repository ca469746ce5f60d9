"""A base with adapters beside, by PEFT, with the options of vLLM: `FOLDER PORT --enable-lora --lora-modules A=DIR`."""

import json
import sys
from argparse import ArgumentParser
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any, Final

_BASE: Final = "base"


def _complete(model: Any, tokenizer: Any, content: dict[str, Any]) -> dict[str, Any]:
    """Return a greedy completion of the base or of the adapter that a request names, as OpenAI has it."""
    import torch
    from peft import PeftModel

    stop = model.generation_config.eos_token_id
    if content["model"] != _BASE:
        model.set_adapter(content["model"])
    is_plain = content["model"] == _BASE and isinstance(model, PeftModel)
    ids = torch.tensor([content["prompt"]])
    with torch.inference_mode(), model.disable_adapter() if is_plain else nullcontext():
        written = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=content["max_tokens"],
            do_sample=False,
        )
    tokens = written[0, ids.shape[1] :].tolist()
    has_stopped = tokens[-1] in (stop if isinstance(stop, list) else [stop])
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    choice = {"text": text, "finish_reason": "stop" if has_stopped else "length"}
    return {"choices": [choice], "usage": {"completion_tokens": len(tokens)}}


def main() -> None:
    """Serve until the process is ended."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    parser = ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("port", type=int)
    parser.add_argument("--enable-lora", action="store_true")
    parser.add_argument("--max-lora-rank", type=int, choices=(8, 16, 32, 64, 128, 256, 320, 512), default=16)
    parser.add_argument("--lora-modules", nargs="+", default=[])
    options = parser.parse_args()
    model: Any = AutoModelForCausalLM.from_pretrained(options.folder).eval()
    tokenizer, names = AutoTokenizer.from_pretrained(options.folder), [_BASE]
    for module in options.lora_modules:
        name, _, path = module.partition("=")
        names.append(name)
        if isinstance(model, PeftModel):
            model.load_adapter(path, name)
        else:
            model = PeftModel.from_pretrained(model, path, name)
    sys.stdout.write(" ".join(["serving", *names]) + "\n")
    sys.stdout.flush()
    one_at_a_time = Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({"data": [{"id": name} for name in names]})

        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with one_at_a_time:
                self._reply(_complete(model, tokenizer, content))

        def _reply(self, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
