"""The commands that carry a store elsewhere and back: `export`, `import`, `backup`, `restore`."""

from __future__ import annotations
