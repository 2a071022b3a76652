c++ -std=c++20 -O2 greet.cpp $(pkg-config --cflags --libs heddle) -Wl,-rpath,$(pkg-config --variable=libdir heddle) -o greet
c++ -std=c++20 -O2 letter.cpp $(pkg-config --cflags --libs heddle) -Wl,-rpath,$(pkg-config --variable=libdir heddle) -o letter
c++ -std=c++20 -O2 threads.cpp $(pkg-config --cflags --libs heddle) -Wl,-rpath,$(pkg-config --variable=libdir heddle) -pthread -o threads
