// run cpu: sink
// What is computed and turned for one op alone, with numbers, is turned behind it; no wider result.
func.func @main(%x: f32[n, 4, 6], %y: f32[n, 4, 6], %z: f32[n, 4, 6], %s: f32[1, 1]) -> (f32[4, n, 6], f32[n, 2, 6, 2], f64[6, n, 4], f32[6, n, 4], f32[6, n, 4]) attributes {heddle.symbols = {n = [1, 9]}} {
  %a = softmax(%x) {axis = 2 : i64} : (f32[n, 4, 6]) -> f32[n, 4, 6]
  %b = transpose(%a) {permutation = array<i64: 1, 0, 2>} : (f32[n, 4, 6]) -> f32[4, n, 6]
  %c = mul(%s, %b) : (f32[1, 1], f32[4, n, 6]) -> f32[4, n, 6]
  %d = softmax(%y) {axis = 2 : i64} : (f32[n, 4, 6]) -> f32[n, 4, 6]
  %e = reshape(%d) {shape = ["n", "2", "2", "6"]} : (f32[n, 4, 6]) -> f32[n, 2, 2, 6]
  %f = transpose(%e) {permutation = array<i64: 0, 1, 3, 2>} : (f32[n, 2, 2, 6]) -> f32[n, 2, 6, 2]
  %g = relu(%f) : (f32[n, 2, 6, 2]) -> f32[n, 2, 6, 2]
  %h = exp(%g) : (f32[n, 2, 6, 2]) -> f32[n, 2, 6, 2]
  %i = softmax(%z) {axis = 2 : i64} : (f32[n, 4, 6]) -> f32[n, 4, 6]
  %j = transpose(%i) {permutation = array<i64: 2, 0, 1>} : (f32[n, 4, 6]) -> f32[6, n, 4]
  %k = cast(%j) {dtype = f64} : (f32[6, n, 4]) -> f64[6, n, 4]
  %l = transpose(%x) {permutation = array<i64: 2, 0, 1>} : (f32[n, 4, 6]) -> f32[6, n, 4]
  %o = neg(%l) : (f32[6, n, 4]) -> f32[6, n, 4]
  %p = transpose(%i) {permutation = array<i64: 2, 0, 1>} : (f32[n, 4, 6]) -> f32[6, n, 4]
  %q = add(%p, %p) : (f32[6, n, 4], f32[6, n, 4]) -> f32[6, n, 4]
  return %c, %h, %k, %o, %q : f32[4, n, 6], f32[n, 2, 6, 2], f64[6, n, 4], f32[6, n, 4], f32[6, n, 4]
}

// gives
module {
  func.func @main(%arg0: f32[n, 4, 6], %arg1: f32[n, 4, 6], %arg2: f32[n, 4, 6], %arg3: f32[1, 1]) -> (f32[4, n, 6], f32[n, 2, 6, 2], f64[6, n, 4], f32[6, n, 4], f32[6, n, 4]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = softmax(%arg0) {axis = 2 : i64} : (f32[n, 4, 6]) -> f32[n, 4, 6]
    %1 = reshape(%arg3) {shape = []} : (f32[1, 1]) -> f32[]
    %2 = mul(%1, %0) : (f32[], f32[n, 4, 6]) -> f32[n, 4, 6]
    %3 = transpose(%2) {permutation = array<i64: 1, 0, 2>} : (f32[n, 4, 6]) -> f32[4, n, 6]
    %4 = softmax(%arg1) {axis = 2 : i64} : (f32[n, 4, 6]) -> f32[n, 4, 6]
    %5 = relu(%4) : (f32[n, 4, 6]) -> f32[n, 4, 6]
    %6 = exp(%5) : (f32[n, 4, 6]) -> f32[n, 4, 6]
    %7 = reshape(%6) {shape = ["n", "2", "2", "6"]} : (f32[n, 4, 6]) -> f32[n, 2, 2, 6]
    %8 = transpose(%7) {permutation = array<i64: 0, 1, 3, 2>} : (f32[n, 2, 2, 6]) -> f32[n, 2, 6, 2]
    %9 = softmax(%arg2) {axis = 2 : i64} : (f32[n, 4, 6]) -> f32[n, 4, 6]
    %10 = transpose(%9) {permutation = array<i64: 2, 0, 1>} : (f32[n, 4, 6]) -> f32[6, n, 4]
    %11 = cast(%10) {dtype = f64} : (f32[6, n, 4]) -> f64[6, n, 4]
    %12 = transpose(%arg0) {permutation = array<i64: 2, 0, 1>} : (f32[n, 4, 6]) -> f32[6, n, 4]
    %13 = neg(%12) : (f32[6, n, 4]) -> f32[6, n, 4]
    %14 = add(%10, %10) : (f32[6, n, 4], f32[6, n, 4]) -> f32[6, n, 4]
    return %3, %8, %11, %13, %14 : f32[4, n, 6], f32[n, 2, 6, 2], f64[6, n, 4], f32[6, n, 4], f32[6, n, 4]
  }
}
