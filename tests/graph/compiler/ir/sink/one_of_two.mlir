// run cpu: sink
// Of two transposes one is enough where a reshape between them splits axes, merges them, or both.
func.func @main(%x: f32[n, 4, 6, 8], %y: f32[n, 4, 6, 8], %z: f32[n, 4, 6, 8], %r: f32[n, 4, 6, 8]) -> (f32[n, 2, 4, 2, 6, 2], f32[n, 24, 8], f32[n, 24, 4, 2], f32[n, 24, 8], f32[n, 8, 24]) attributes {heddle.symbols = {n = [1, 9]}} {
  %a = transpose(%x) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 4, 6, 8]) -> f32[n, 8, 4, 6]
  %b = reshape(%a) {shape = ["n", "2", "2", "2", "4", "6"]} : (f32[n, 8, 4, 6]) -> f32[n, 2, 2, 2, 4, 6]
  %c = transpose(%b) {permutation = array<i64: 0, 1, 4, 2, 5, 3>} : (f32[n, 2, 2, 2, 4, 6]) -> f32[n, 2, 4, 2, 6, 2]
  %d = transpose(%y) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 4, 6, 8]) -> f32[n, 8, 4, 6]
  %e = reshape(%d) {shape = ["n", "8", "24"]} : (f32[n, 8, 4, 6]) -> f32[n, 8, 24]
  %f = transpose(%e) {permutation = array<i64: 0, 2, 1>} : (f32[n, 8, 24]) -> f32[n, 24, 8]
  %g = transpose(%z) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 4, 6, 8]) -> f32[n, 8, 4, 6]
  %h = reshape(%g) {shape = ["n", "2", "4", "24"]} : (f32[n, 8, 4, 6]) -> f32[n, 2, 4, 24]
  %i = transpose(%h) {permutation = array<i64: 0, 3, 2, 1>} : (f32[n, 2, 4, 24]) -> f32[n, 24, 4, 2]
  %j = transpose(%r) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 4, 6, 8]) -> f32[n, 8, 4, 6]
  %k = reshape(%j) {shape = ["n", "8", "24"]} : (f32[n, 8, 4, 6]) -> f32[n, 8, 24]
  %l = transpose(%k) {permutation = array<i64: 0, 2, 1>} : (f32[n, 8, 24]) -> f32[n, 24, 8]
  return %c, %f, %i, %l, %k : f32[n, 2, 4, 2, 6, 2], f32[n, 24, 8], f32[n, 24, 4, 2], f32[n, 24, 8], f32[n, 8, 24]
}

// gives
module {
  func.func @main(%arg0: f32[n, 4, 6, 8], %arg1: f32[n, 4, 6, 8], %arg2: f32[n, 4, 6, 8], %arg3: f32[n, 4, 6, 8]) -> (f32[n, 2, 4, 2, 6, 2], f32[n, 24, 8], f32[n, 24, 4, 2], f32[n, 24, 8], f32[n, 8, 24]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = reshape(%arg0) {shape = ["n", "4", "6", "2", "2", "2"]} : (f32[n, 4, 6, 8]) -> f32[n, 4, 6, 2, 2, 2]
    %1 = transpose(%0) {permutation = array<i64: 0, 3, 1, 4, 2, 5>} : (f32[n, 4, 6, 2, 2, 2]) -> f32[n, 2, 4, 2, 6, 2]
    %2 = reshape(%arg1) {shape = ["n", "24", "8"]} : (f32[n, 4, 6, 8]) -> f32[n, 24, 8]
    %3 = reshape(%arg2) {shape = ["n", "4", "6", "2", "4"]} : (f32[n, 4, 6, 8]) -> f32[n, 4, 6, 2, 4]
    %4 = transpose(%3) {permutation = array<i64: 0, 1, 2, 4, 3>} : (f32[n, 4, 6, 2, 4]) -> f32[n, 4, 6, 4, 2]
    %5 = reshape(%4) {shape = ["n", "24", "4", "2"]} : (f32[n, 4, 6, 4, 2]) -> f32[n, 24, 4, 2]
    %6 = transpose(%arg3) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 4, 6, 8]) -> f32[n, 8, 4, 6]
    %7 = reshape(%6) {shape = ["n", "8", "24"]} : (f32[n, 8, 4, 6]) -> f32[n, 8, 24]
    %8 = reshape(%arg3) {shape = ["n", "24", "8"]} : (f32[n, 4, 6, 8]) -> f32[n, 24, 8]
    return %1, %2, %5, %8, %7 : f32[n, 2, 4, 2, 6, 2], f32[n, 24, 8], f32[n, 24, 4, 2], f32[n, 24, 8], f32[n, 8, 24]
  }
}
