"""What every screen is made of: lines, lists, dialogs, header, key bar."""
