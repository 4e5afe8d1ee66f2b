// Package view says what the console's pages show: objects and the time in, plain values for templates out. It is pure. It shows
// nothing that is not in the objects, so nothing that kubectl would not show to whoever may read them, and decides nothing but which
// words, order and place things get.
package view
