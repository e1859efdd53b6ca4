"""Order policies: which waiting request is admitted first (`belady.core.view.OrderPolicy`)."""
