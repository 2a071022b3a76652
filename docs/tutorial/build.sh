FLAGS="-std=c++20 -O2 $(pkg-config --cflags --libs heddle) -Wl,-rpath,$(pkg-config --variable=libdir heddle)"
c++ greet.cpp $FLAGS -o greet
c++ letter.cpp $FLAGS -o letter
c++ threads.cpp $FLAGS -pthread -o threads
