"""The state of the dashboard: observations, the user's choices, and the values drawn from them."""
