"""Route policies: which replica serves a request (`belady.policy.route.view.RoutePolicy`)."""
