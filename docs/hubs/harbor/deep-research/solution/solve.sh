#!/bin/sh
exec python /solution/solve.py
