"""The ledger of ticks: plan and record every decision, change and forecast of a schedule."""
