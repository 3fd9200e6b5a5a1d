"""Tables of many tasks: wide, long, or one data set per task; preprocessing; CSV and Parquet files."""
