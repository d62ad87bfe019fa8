"""`--hub`: a model's config and the headers of its safetensors from huggingface.co, by range requests; nothing else.

Nothing is kept or run. Endpoints and the token's place as in huggingface_hub 1.x, constants.py (HF_ENDPOINT, HF_TOKEN,
HF_TOKEN_PATH, HF_HUB_OFFLINE).
"""

import io
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from typing import IO

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import CONFIG, SAFETENSORS
from vramtui.core.base.file_limits import INDEX as INDEX_LIMITS
from vramtui.core.base.text import printable
from vramtui.models.named_files import INDEX, WEIGHTS, path_named
from vramtui.models.readers.bounded import Cursor, DamagedError, decode_object
from vramtui.models.readers.config_json import ConfigFile, parse_config
from vramtui.models.readers.model_folder import CheckpointWeights, shards_of, tensors_in
from vramtui.models.stores.local_models import hub_home, parsed

ENDPOINT = "https://huggingface.co"
TIMEOUT = 10
FIRST = 1 << 17  # most headers of one shard are shorter, so that one request does
MOST_SHARDS = 256
_YES = {"1", "true", "yes", "on"}


class HubModel(msgspec.Struct, frozen=True):
    """A model on the Hub: its repository's name and address, its config, and its weights' headers where it has any."""

    name: str
    address: str
    config: ConfigFile
    weights: CheckpointWeights | None


def fetch_model(name: str, environ: Mapping[str, str] | None = None) -> HubModel:
    """The model of `owner/name` or `owner/name@revision`. Raises UserError if it is not a name of the Hub, the network
    is switched off or fails, or the model is not read.
    """
    known = os.environ if environ is None else environ
    name_parts = parsed(name)
    if name_parts is None or name_parts[2]:
        raise UserError(f"--hub takes owner/name or owner/name@revision, not {printable(name[:80])!r}")
    if known.get("HF_HUB_OFFLINE", "").lower() in _YES:
        raise UserError("--hub asks the network, and HF_HUB_OFFLINE forbids it")
    remote = _Repository(name_parts[0], name_parts[1] or "main", known)
    content = remote.read("config.json", CONFIG.size)
    values = None if content is None else decode_object(content)
    if values is None:
        raise UserError(f"{remote.address} has no config.json that is a JSON object")
    try:
        return HubModel(name_parts[0], remote.address, parse_config(values), remote.weights())
    except DamagedError as error:
        raise UserError(f"config.json of {remote.address} {error}") from None


class _Repository:
    def __init__(self, name: str, revision: str, environ: Mapping[str, str]) -> None:
        self.address = f"{(environ.get('HF_ENDPOINT') or ENDPOINT).rstrip('/')}/{name}"
        self._files = f"{self.address}/resolve/{urllib.parse.quote(revision, safe='')}"
        self._token = _token(environ)
        self._opener = urllib.request.build_opener(_SameHost)

    def weights(self) -> CheckpointWeights | None:
        """The tensors of all safetensors files; None if there are none."""
        index = self.read(INDEX, INDEX_LIMITS.size)
        if index is None:
            return self._header(WEIGHTS)
        names = shards_of(index)
        if names is None or len(names) > MOST_SHARDS:
            raise UserError(f"{INDEX} of {self.address} is not an index of up to {MOST_SHARDS} safetensors files")
        whole = CheckpointWeights(parameters=0, bytes=0, types={})
        for name in names:
            part = self._header(name)
            if part is None:
                raise UserError(f"{INDEX} of {self.address} names {printable(name[:80])}, which is not there")
            whole += part
        return whole

    def read(self, name: str, most: int) -> bytes | None:
        """A small file; None if there is none."""
        content = self._get(name, most)
        if content is not None and len(content[0]) > most:
            raise UserError(f"{name} of {self.address} is larger than {most:,} bytes")
        return None if content is None else content[0]

    def _header(self, name: str) -> CheckpointWeights | None:
        answer = self._get(name, FIRST - 1)
        if answer is None:
            return None
        content, size = answer
        length = 8 + int.from_bytes(content[:8], "little")
        if len(content) < length <= SAFETENSORS.size:
            content, size = self._get(name, length - 1) or (content, size)
        try:
            return tensors_in(Cursor(io.BytesIO(content), size), size)
        except DamagedError as error:
            raise UserError(f"{name} of {self.address} {error}") from None

    def _get(self, name: str, most: int) -> tuple[bytes, int] | None:
        """At most `most` + 1 bytes of a file, and the size of all of it; None if there is none."""
        headers = {"Range": f"bytes=0-{most}", "User-Agent": "vramtui", "Accept-Encoding": "identity"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(f"{self._files}/{urllib.parse.quote(name)}", headers=headers)  # noqa: S310 - checked
        if request.type not in {"http", "https"}:
            raise UserError(f"HF_ENDPOINT names no http or https address: {printable(self.address)}")
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                content = answer.read(most + 1)
                whole = answer.headers.get("Content-Range", "").rpartition("/")[2]
                return content, int(whole) if whole.isdigit() else int(answer.headers.get("Content-Length") or 0)
        except urllib.error.HTTPError as error:
            error.close()  # it is an open answer
            if error.code == 404:
                return None
            why = (
                "needs a token that may read it: `hf auth login`"
                if error.code in {401, 403}
                else f"answered {error.code}"
            )
            raise UserError(f"{self.address} {why}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise UserError(f"{self.address} cannot be reached: {printable(str(error))[:200]}") from None


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows to where files are kept without the token, which is only for the hub."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        after = super().redirect_request(req, fp, code, msg, headers, newurl)
        if after is not None and (after.host != req.host or after.type != req.type):
            after.remove_header("Authorization")
        return after


def _token(environ: Mapping[str, str]) -> str:
    """The token that huggingface_hub uses; empty if there is none."""
    token = environ.get("HF_TOKEN") or environ.get("HUGGING_FACE_HUB_TOKEN")
    if token:
        return token.strip()
    path = path_named(environ.get("HF_TOKEN_PATH") or hub_home(environ) / "token")
    try:
        with path.open("rb") as file:
            return file.read(1024).decode("ascii", "ignore").strip()
    except OSError:
        return ""
