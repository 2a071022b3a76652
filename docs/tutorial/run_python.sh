python -m heddle.run -n 4 greet.py
python -m heddle.run -n 4 letter.py
python -m heddle.run -n 4 threads.py
