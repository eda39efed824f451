"""What papers print: values, tables, configurations, parameter counts."""
