"""`run_sql`: one reading query over tables in CSV, Parquet or SQLite files."""
