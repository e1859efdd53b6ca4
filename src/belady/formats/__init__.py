"""Trace formats in and out: streaming readers that turn files into typed rows.

A leaf: standard library and msgspec only. It knows nothing of requests, programs or simulation; drivers translate.
"""

from belady.formats.azure import AzureRow, read_azure
from belady.formats.detect import TraceFormat, detect
from belady.formats.lines import FormatError
from belady.formats.mooncake import MooncakeRow, read_mooncake, write_mooncake
from belady.formats.weka import (
    WekaCall,
    WekaConversation,
    WekaStreamedCall,
    WekaSubagent,
    common_prefix_blocks,
    expand_blocks,
    read_weka,
)

__all__ = [
    "AzureRow",
    "FormatError",
    "MooncakeRow",
    "TraceFormat",
    "WekaCall",
    "WekaConversation",
    "WekaStreamedCall",
    "WekaSubagent",
    "common_prefix_blocks",
    "detect",
    "expand_blocks",
    "read_azure",
    "read_mooncake",
    "read_weka",
    "write_mooncake",
]
