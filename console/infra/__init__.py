"""Where a run runs, and how the controller gets there: machines over SSH, or folders of this machine."""
