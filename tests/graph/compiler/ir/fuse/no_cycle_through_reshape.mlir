// run cuda: fuse
// The add reads a reshape of exp's result, which exists only after exp's kernel.
func.func @main(%x: f32[1, 8]) -> f32[1, 8] attributes {heddle.symbols = {}} {
  %a = exp(%x) : (f32[1, 8]) -> f32[1, 8]
  %b = reshape(%a) {shape = ["8"]} : (f32[1, 8]) -> f32[8]
  %c = add(%a, %b) : (f32[1, 8], f32[8]) -> f32[1, 8]
  return %c : f32[1, 8]
}

// gives
module {
  func.func @main(%arg0: f32[1, 8]) -> f32[1, 8] attributes {heddle.symbols = {}} {
    %0 = fused(%arg0) ({
    ^bb0(%arg1: f32[1, 8]):
      %3 = exp(%arg1) : (f32[1, 8]) -> f32[1, 8]
      yield(%3) : (f32[1, 8]) -> ()
    }) : (f32[1, 8]) -> f32[1, 8]
    %1 = reshape(%0) {shape = ["8"]} : (f32[1, 8]) -> f32[8]
    %2 = fused(%0, %1) ({
    ^bb0(%arg1: f32[1, 8], %arg2: f32[8]):
      %3 = add(%arg1, %arg2) : (f32[1, 8], f32[8]) -> f32[1, 8]
      yield(%3) : (f32[1, 8]) -> ()
    }) : (f32[1, 8], f32[8]) -> f32[1, 8]
    return %2 : f32[1, 8]
  }
}
