// run cpu: legalize
// As for softmax, the last axis is where the places of the best are found; sums take any axis.
func.func @main(%x: f32[n, 3, 4]) -> (i64[1, 3, 4], f32[n, 3, 4], i64[n, 3, 1]) attributes {heddle.symbols = {n = [1, 9]}} {
  %a = argmax(%x) {axis = 0 : i64} : (f32[n, 3, 4]) -> i64[1, 3, 4]
  %b = cumsum(%x) {axis = 1 : i64} : (f32[n, 3, 4]) -> f32[n, 3, 4]
  %c = argmin(%x) {axis = 2 : i64} : (f32[n, 3, 4]) -> i64[n, 3, 1]
  return %a, %b, %c : i64[1, 3, 4], f32[n, 3, 4], i64[n, 3, 1]
}

// gives
module {
  func.func @main(%arg0: f32[n, 3, 4]) -> (i64[1, 3, 4], f32[n, 3, 4], i64[n, 3, 1]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = transpose(%arg0) {permutation = array<i64: 2, 1, 0>} : (f32[n, 3, 4]) -> f32[4, 3, n]
    %1 = argmax(%0) {axis = 2 : i64} : (f32[4, 3, n]) -> i64[4, 3, 1]
    %2 = transpose(%1) {permutation = array<i64: 2, 1, 0>} : (i64[4, 3, 1]) -> i64[1, 3, 4]
    %3 = cumsum(%arg0) {axis = 1 : i64} : (f32[n, 3, 4]) -> f32[n, 3, 4]
    %4 = argmin(%arg0) {axis = 2 : i64} : (f32[n, 3, 4]) -> i64[n, 3, 1]
    return %2, %3, %4 : i64[1, 3, 4], f32[n, 3, 4], i64[n, 3, 1]
  }
}
