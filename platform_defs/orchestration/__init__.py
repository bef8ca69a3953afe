"""What Dagster runs, and when: jobs, schedules and sensors, what they may request, and how the work of a run is done."""
