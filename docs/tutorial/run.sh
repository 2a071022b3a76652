heddle run -n 4 ./greet
heddle run -n 4 ./letter
heddle run -n 4 ./threads
