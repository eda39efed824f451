"""Published claims and the verdicts on them: relations, contrasts, power, the scoreboard."""
