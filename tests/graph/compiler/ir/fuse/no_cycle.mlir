// run cuda: fuse
// The last add may not join exp: its other operand is a softmax of exp's result.
func.func @main(%x: f32[n, 8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
  %a = exp(%x) : (f32[n, 8]) -> f32[n, 8]
  %b = softmax(%a) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 8]
  %c = transpose(%b) {permutation = array<i64: 1, 0>} : (f32[n, 8]) -> f32[8, n]
  %d = transpose(%c) {permutation = array<i64: 1, 0>} : (f32[8, n]) -> f32[n, 8]
  %e = exp(%d) : (f32[n, 8]) -> f32[n, 8]
  %f = add(%a, %e) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
  return %f : f32[n, 8]
}

// gives
module {
  func.func @main(%arg0: f32[n, 8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = fused(%arg0) ({
    ^bb0(%arg1: f32[n, 8]):
      %4 = exp(%arg1) : (f32[n, 8]) -> f32[n, 8]
      yield(%4) : (f32[n, 8]) -> ()
    }) : (f32[n, 8]) -> f32[n, 8]
    %1 = fused(%0) ({
    ^bb0(%arg1: f32[n, 8]):
      %4 = softmax(%arg1) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 8]
      yield(%4) : (f32[n, 8]) -> ()
    }) : (f32[n, 8]) -> f32[n, 8]
    %2 = fused(%1) ({
    ^bb0(%arg1: f32[n, 8]):
      %4 = transpose(%arg1) {permutation = array<i64: 1, 0>} : (f32[n, 8]) -> f32[8, n]
      yield(%4) : (f32[8, n]) -> ()
    }) : (f32[n, 8]) -> f32[8, n]
    %3 = fused(%2, %0) ({
    ^bb0(%arg1: f32[8, n], %arg2: f32[n, 8]):
      %4 = transpose(%arg1) {permutation = array<i64: 1, 0>} : (f32[8, n]) -> f32[n, 8]
      %5 = exp(%4) : (f32[n, 8]) -> f32[n, 8]
      %6 = add(%arg2, %5) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
      yield(%6) : (f32[n, 8]) -> ()
    }) : (f32[8, n], f32[n, 8]) -> f32[n, 8]
    return %3 : f32[n, 8]
  }
}
