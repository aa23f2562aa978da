// run cpu: sink
// Of two transposes one is enough where a reshape between them splits axes, merges them, or both;
// two stay where one would turn lines of a few elements.
func.func @main(%x: f32[n, 4, 6, 64], %s: f32[n, 4, 6, 8], %y: f32[n, 4, 6, 8], %z: f32[n, 4, 6, 512], %r: f32[n, 4, 6, 8]) -> (f32[n, 2, 4, 6, 32], f32[n, 2, 4, 2, 6, 2], f32[n, 24, 8], f32[n, 24, 32, 16], f32[n, 24, 8], f32[n, 8, 24]) attributes {heddle.symbols = {n = [1, 9]}} {
  %a = transpose(%x) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 4, 6, 64]) -> f32[n, 64, 4, 6]
  %b = reshape(%a) {shape = ["n", "2", "32", "4", "6"]} : (f32[n, 64, 4, 6]) -> f32[n, 2, 32, 4, 6]
  %c = transpose(%b) {permutation = array<i64: 0, 1, 3, 4, 2>} : (f32[n, 2, 32, 4, 6]) -> f32[n, 2, 4, 6, 32]
  %m = transpose(%s) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 4, 6, 8]) -> f32[n, 8, 4, 6]
  %o = reshape(%m) {shape = ["n", "2", "2", "2", "4", "6"]} : (f32[n, 8, 4, 6]) -> f32[n, 2, 2, 2, 4, 6]
  %p = transpose(%o) {permutation = array<i64: 0, 1, 4, 2, 5, 3>} : (f32[n, 2, 2, 2, 4, 6]) -> f32[n, 2, 4, 2, 6, 2]
  %d = transpose(%y) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 4, 6, 8]) -> f32[n, 8, 4, 6]
  %e = reshape(%d) {shape = ["n", "8", "24"]} : (f32[n, 8, 4, 6]) -> f32[n, 8, 24]
  %f = transpose(%e) {permutation = array<i64: 0, 2, 1>} : (f32[n, 8, 24]) -> f32[n, 24, 8]
  %g = transpose(%z) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 4, 6, 512]) -> f32[n, 512, 4, 6]
  %h = reshape(%g) {shape = ["n", "16", "32", "24"]} : (f32[n, 512, 4, 6]) -> f32[n, 16, 32, 24]
  %i = transpose(%h) {permutation = array<i64: 0, 3, 2, 1>} : (f32[n, 16, 32, 24]) -> f32[n, 24, 32, 16]
  %j = transpose(%r) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 4, 6, 8]) -> f32[n, 8, 4, 6]
  %k = reshape(%j) {shape = ["n", "8", "24"]} : (f32[n, 8, 4, 6]) -> f32[n, 8, 24]
  %l = transpose(%k) {permutation = array<i64: 0, 2, 1>} : (f32[n, 8, 24]) -> f32[n, 24, 8]
  return %c, %p, %f, %i, %l, %k : f32[n, 2, 4, 6, 32], f32[n, 2, 4, 2, 6, 2], f32[n, 24, 8], f32[n, 24, 32, 16], f32[n, 24, 8], f32[n, 8, 24]
}



// gives
module {
  func.func @main(%arg0: f32[n, 4, 6, 64], %arg1: f32[n, 4, 6, 8], %arg2: f32[n, 4, 6, 8], %arg3: f32[n, 4, 6, 512], %arg4: f32[n, 4, 6, 8]) -> (f32[n, 2, 4, 6, 32], f32[n, 2, 4, 2, 6, 2], f32[n, 24, 8], f32[n, 24, 32, 16], f32[n, 24, 8], f32[n, 8, 24]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = reshape(%arg0) {shape = ["n", "4", "6", "2", "32"]} : (f32[n, 4, 6, 64]) -> f32[n, 4, 6, 2, 32]
    %1 = transpose(%0) {permutation = array<i64: 0, 3, 1, 2, 4>} : (f32[n, 4, 6, 2, 32]) -> f32[n, 2, 4, 6, 32]
    %2 = transpose(%arg1) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 4, 6, 8]) -> f32[n, 8, 4, 6]
    %3 = reshape(%2) {shape = ["n", "2", "2", "2", "4", "6"]} : (f32[n, 8, 4, 6]) -> f32[n, 2, 2, 2, 4, 6]
    %4 = transpose(%3) {permutation = array<i64: 0, 1, 4, 2, 5, 3>} : (f32[n, 2, 2, 2, 4, 6]) -> f32[n, 2, 4, 2, 6, 2]
    %5 = reshape(%arg2) {shape = ["n", "24", "8"]} : (f32[n, 4, 6, 8]) -> f32[n, 24, 8]
    %6 = reshape(%arg3) {shape = ["n", "4", "6", "16", "32"]} : (f32[n, 4, 6, 512]) -> f32[n, 4, 6, 16, 32]
    %7 = transpose(%6) {permutation = array<i64: 0, 1, 2, 4, 3>} : (f32[n, 4, 6, 16, 32]) -> f32[n, 4, 6, 32, 16]
    %8 = reshape(%7) {shape = ["n", "24", "32", "16"]} : (f32[n, 4, 6, 32, 16]) -> f32[n, 24, 32, 16]
    %9 = transpose(%arg4) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 4, 6, 8]) -> f32[n, 8, 4, 6]
    %10 = reshape(%9) {shape = ["n", "8", "24"]} : (f32[n, 8, 4, 6]) -> f32[n, 8, 24]
    %11 = reshape(%arg4) {shape = ["n", "24", "8"]} : (f32[n, 4, 6, 8]) -> f32[n, 24, 8]
    return %1, %4, %5, %8, %11, %10 : f32[n, 2, 4, 6, 32], f32[n, 2, 4, 2, 6, 2], f32[n, 24, 8], f32[n, 24, 32, 16], f32[n, 24, 8], f32[n, 8, 24]
  }
}
