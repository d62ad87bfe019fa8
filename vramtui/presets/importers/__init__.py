"""A preset's values read from elsewhere: command lines, and the YAML and JSON files of training programs."""
