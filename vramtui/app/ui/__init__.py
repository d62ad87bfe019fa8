"""The parts of every screen: lines, lists, dialogs, header, key bar."""
