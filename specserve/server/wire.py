"""JSON as it goes over the wire."""

from __future__ import annotations

import json

# ASCII only: some clients split lines at U+0085 and U+2028 too, which JSON leaves as they are, and what a
# client sent may be quoted to it without being valid Unicode.
dumps = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
